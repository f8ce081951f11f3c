"""Where output goes: files by generation, and the console."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from elastic_infra.launcher.command_line import option_values, plan
from elastic_infra.launcher.workers import logs


def log_plan(redirects: str = "0", tee: str = "0", ranks: str = "") -> plan.LogPlan:
    return plan.LogPlan(
        redirects=option_values.stream_map("-r", redirects),
        tee=option_values.stream_map("-t", tee),
        console_ranks=option_values.local_ranks(ranks),
    )


def shape(target: logs.Destination) -> tuple[str | None, str | None, list[str]]:
    def name(path: str | None) -> str | None:
        return path and Path(path).name

    return name(target.stdout), name(target.stderr), sorted(target.tee)


CASES: list[tuple[Mapping[str, str], list[tuple[str | None, str | None, list[str]]]]] = [
    ({}, [(None, None, []), (None, None, [])]),
    ({"redirects": "3"}, [("stdout.log", "stderr.log", [])] * 2),
    ({"redirects": "1:2"}, [(None, None, []), (None, "stderr.log", [])]),
    ({"tee": "1"}, [("stdout.log", None, ["stdout"])] * 2),
    ({"ranks": "0"}, [(None, None, []), ("null", "null", [])]),
    (
        {"tee": "3", "ranks": "0"},
        [("stdout.log", "stderr.log", ["stderr", "stdout"]), ("stdout.log", "stderr.log", [])],
    ),
]


@pytest.mark.parametrize(("given", "expected"), CASES)
def test_destinations(given: Mapping[str, str], expected: list[tuple[str | None, str | None, list[str]]]) -> None:
    """Redirects, tee and the ranks filter combine as in torchrun."""
    assert expected == [shape(target) for target in logs.destinations(log_plan(**given), "/run", 1, 2)]


def test_destinations_are_torchruns(tmp_path: Path) -> None:
    """For every combination of masks and filters, streams go where torchrun's own LogsSpecs sends them."""
    torch = pytest.importorskip("torch.distributed.elastic.multiprocessing.api")
    for redirects in ("0", "1", "2", "3", "0:1,1:2"):
        for tee in ("0", "1", "2", "3", "1:3"):
            for ranks in ("", "0", "1"):
                specs = torch.DefaultLogsSpecs(
                    log_dir=str(tmp_path),
                    redirects=torch.Std.from_str(redirects),
                    tee=torch.Std.from_str(tee),
                    local_ranks_filter=set(option_values.local_ranks(ranks) or ()) or None,
                )
                theirs = specs.reify({0: {}, 1: {}})
                ours = logs.destinations(log_plan(redirects, tee, ranks), "/run", 1, 2)
                for target in ours:
                    rank = target.local_rank
                    assert Path(theirs.stdouts[rank]).name == Path(target.stdout or "").name
                    assert Path(theirs.stderrs[rank]).name == Path(target.stderr or "").name
                    assert (rank in theirs.tee_stdouts) == ("stdout" in target.tee)
                    assert (rank in theirs.tee_stderrs) == ("stderr" in target.tee)


def test_generations_keep_their_files(tmp_path: Path) -> None:
    """A new generation writes beside the old one and deletes nothing."""
    run = logs.make_run_folder(str(tmp_path / "logs"), "my/job")
    for generation in (1, 2):
        targets = logs.destinations(log_plan(redirects="3"), run, generation, 1)
        logs.make_folders(targets)
        Path(targets[0].stdout or "").write_text(f"{generation}")

    assert Path(run).name.startswith("my_job_")
    assert Path(run, "generation_1", "0", "stdout.log").read_text() == "1"


def test_dev_null_means_no_files() -> None:
    """With /dev/null as log folder nothing is written, error files included."""
    assert logs.make_run_folder(os.devnull, "x") == os.devnull
    target = logs.destinations(log_plan(tee="3"), os.devnull, 1, 1)[0]
    assert (target.error_file, target.stdout) == ("", None)


def test_prefixes() -> None:
    """Torchrun's default prefix, or the template with its four names."""
    template = plan.LogPlan(prefix_template="${hostname}:${rank}/${local_rank} ${role_name} ${other}: ")

    assert logs.prefix(plan.LogPlan(), "trainer", 1, 5, "n0") == "[trainer1]:"
    assert logs.prefix(template, "trainer", 1, 5, "n0") == "n0:5/1 trainer ${other}: "


def test_tail_copies_whole_lines_and_filters(tmp_path: Path) -> None:
    """Every line is copied once with its prefix, an unfinished last line too; or those with one of the words."""
    source, everything, losses = tmp_path / "stdout.log", io.BytesIO(), tmp_path / "filtered"
    sources = [(str(source), "[0]:")]
    tails = [logs.Tail(sources, everything.write), logs.Tail(sources, logs.Appender(str(losses)), words=("loss",))]
    for tail in tails:
        tail.start()
    source.write_text("loss 1\nother\n")
    with source.open("a") as file:
        file.write("loss 2")
    for tail in tails:
        tail.finish()
        tail.join()

    assert everything.getvalue() == b"[0]:loss 1\n[0]:other\n[0]:loss 2\n"
    assert losses.read_text() == "[0]:loss 1\n[0]:loss 2\n"


def test_lines_of_earlier_workers_are_not_copied_again(tmp_path: Path) -> None:
    """Workers on standby that ended before their generation began have written to its files."""
    source, shown = tmp_path / "stdout.log", io.BytesIO()
    source.write_text("earlier\n")
    tail = logs.Tail([(str(source), "[0]:")], shown.write, from_end=True)
    with source.open("a") as file:
        file.write("now\n")
    tail.start()
    tail.finish()
    tail.join()

    assert shown.getvalue() == b"[0]:now\n"


def test_a_progress_bar_moves(tmp_path: Path) -> None:
    """Each update of a bar that redraws itself with a carriage return is a line while the worker still runs."""
    source, shown = tmp_path / "stderr.log", io.BytesIO()
    tail = logs.Tail([(str(source), "[0]:")], shown.write)
    source.write_bytes(b"\r 0%\r 50%\r 99%")
    tail.start()

    until(lambda: b"50%" in shown.getvalue())
    tail.finish()
    tail.join()
    assert shown.getvalue() == b"[0]:\n[0]: 0%\n[0]: 50%\n[0]: 99%\n"


def test_a_paused_reader_keeps_nobody(tmp_path: Path) -> None:
    """A generation's output waits for its reader in a thread; what is not taken is named, and comes in order."""
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    first.write_text("one\n")
    second.write_text("two\n")
    reader_is_back, shown = threading.Event(), io.BytesIO()

    def write(data: bytes) -> None:
        reader_is_back.wait(60)
        shown.write(data)

    old = logs.Tail([(str(first), "")], write)
    new = logs.Tail([(str(second), "")], write, after=old)
    for tail in (old, new):
        tail.start()
        tail.finish()
    new.join(0.3)
    assert [*old.left(), *new.left()] == [str(first), str(second)]

    reader_is_back.set()
    new.join()
    assert (shown.getvalue(), [*old.left(), *new.left()]) == (b"one\ntwo\n", [])


def test_a_reader_that_is_gone_ends_the_copy(tmp_path: Path) -> None:
    """Without a reader there is nothing to wait for."""
    source = tmp_path / "stdout.log"
    source.write_text("one\n")

    def write(_: bytes) -> None:
        raise BrokenPipeError

    tail = logs.Tail([(str(source), "")], write)
    tail.start()
    tail.join(30)
    assert (tail.is_alive(), tail.left()) == (False, [])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_file_that_cannot_be_read_for_a_moment_is_read_on(tmp_path: Path) -> None:
    """A network's file may be away. Meanwhile the other workers' lines are shown, and the file is named if it stays."""
    away, other = tmp_path / "0.log", tmp_path / "1.log"
    away.mkdir()
    other.write_text("one\n")
    shown = io.BytesIO()
    tail = logs.Tail([(str(away), ""), (str(other), "")], shown.write)
    tail.start()
    until(lambda: shown.getvalue() == b"one\n")
    away.rmdir()
    away.write_text("two\n")
    until(lambda: shown.getvalue() == b"one\ntwo\n")
    away.unlink()
    away.mkdir()
    tail.finish()
    tail.join(30)

    assert (tail.is_alive(), tail.left()) == (False, [str(away)])
