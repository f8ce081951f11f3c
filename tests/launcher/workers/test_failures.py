"""Root causes, hints and the termination message."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.workers import failures
from elastic_infra.launcher.workers.failures import Failure, is_on_purpose

FAILURE = Failure(
    rank=3, local_rank=1, generation=2, attempt=1, host="node-a", pid=77, exit_code=1,
    error="ValueError: no data", traceback="Traceback ...", at=100.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("exit_code", "error", "expected"),
    [
        (1, "ValueError: no data", "Rank 3 exited with code 1: ValueError: no data."),
        (-signal.SIGKILL, "", "Rank 3 was killed by SIGKILL. Killed from outside: out of memory ("),
        (-signal.SIGABRT, "", "Rank 3 was killed by SIGABRT. Aborted by a library"),
        (1, "torch.OutOfMemoryError: CUDA out of memory.", "CUDA out of memory. The accelerator's memory is full"),
        (1, "RuntimeError: [gloo/pair.cc:534] Connection closed by peer", "look for the rank that failed before"),
        (1, "ModuleNotFoundError: No module named 'datasets'", "The image lacks the module"),
        (1, "DistStoreError: Timed out after 1 s", "look for the rank that hung or never started"),
        (-signal.SIGBUS, "", "/dev/shm is full"),
        (-63, "", "was killed by signal 63"),
        (127, "", "was not found in the image"),
    ],
)
def test_messages(exit_code: int, error: str, expected: str) -> None:
    """The message names rank and end, then what it usually means."""
    assert expected in dataclasses.replace(FAILURE, exit_code=exit_code, error=error).message


def test_a_fault_on_purpose_is_no_shortage_of_memory(tmp_path: Path) -> None:
    """A runner names the workers that it kills; any other one was killed from outside."""
    record = tmp_path / "faults"
    record.write_text("17\n41\n")
    struck = dataclasses.replace(
        FAILURE, exit_code=-signal.SIGKILL, error="", on_purpose=is_on_purpose(str(record), 41)
    )

    assert struck.message == "Rank 3 was killed by SIGKILL. The runner did this on purpose, as a fault."
    assert not any(is_on_purpose(str(path), 4) for path in (record, tmp_path / "none", ""))


def test_an_abort_is_put_down_to_nccl_only_where_it_runs() -> None:
    """Gloo aborts nothing after a timeout, and the launcher does not know the backend."""
    assert "If the backend is NCCL" in dataclasses.replace(FAILURE, exit_code=-signal.SIGABRT, error="").message


def test_a_report_keeps_zeros_and_leaves_out_what_says_nothing() -> None:
    """Rank 0 of the first attempt is a rank; an exception that the worker left none of is no field."""
    first = dataclasses.replace(FAILURE, rank=0, local_rank=0, attempt=0, error="", traceback="").report()

    assert (first["rank"], first["local_rank"], first["attempt"]) == (0, 0, 0)
    assert not {"error", "traceback", "ended_early", "on_purpose"} & first.keys()


@pytest.mark.parametrize(
    ("exit_code", "error", "is_named"),
    [
        (1, "RuntimeError: Connection closed by peer", True),
        (1, "RuntimeError: Timed out after 1 s", True),
        (1, "ValueError: no data", True),
        (-signal.SIGABRT, "", True),
        (1, "OSError: No space left on device", False),
        (-signal.SIGKILL, "", False),
    ],
)
def test_a_rank_that_ended_early_is_named(exit_code: int, error: str, is_named: bool) -> None:
    """A peer that fails because another rank has exited 0 points at that rank, unless it has a reason of its own."""
    early = dataclasses.replace(FAILURE, exit_code=exit_code, error=error, ended_early=(2,))

    assert ("Rank 2 had exited with code 0 before" in early.message) == is_named
    assert early.report()["ended_early"] == (2,)


def test_root_cause_is_the_first_failure() -> None:
    """The earliest failure is the cause; workers that only got SIGTERM come last whenever they ended."""
    later = dataclasses.replace(FAILURE, rank=0, at=101.0)
    ended = dataclasses.replace(FAILURE, rank=1, at=99.0, exit_code=-signal.SIGTERM)

    assert failures.root_cause([later, ended, FAILURE]) == FAILURE
    assert failures.root_cause([]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"message": "boom"}', ("boom", "")),
        (
            '{"message": {"message": "E: x", "extraInfo": {"py_callstack": "T", "timestamp": "7"}}}',
            ("E: x", "T"),
        ),
        ('{"message": {"message": "E: x"}}', ("E: x", "")),
        ("not json", ("", "")),
        ("[]", ("", "")),
        ('{"message": 5}', ("", "")),
    ],
)
def test_error_files(tmp_path: Path, text: str, expected: tuple[str, str]) -> None:
    """Torch's forms of an error file are read, and a broken one is none."""
    path = tmp_path / "error.json"
    path.write_text(text)

    assert expected == failures.read_error_file(str(path))[:2]


def test_the_time_of_a_failure_is_the_files(tmp_path: Path) -> None:
    """The first failure is found by the file's time of writing, to fractions of a second."""
    path = tmp_path / "error.json"
    path.write_text('{"message": "boom"}')
    os.utime(path, (7.25, 7.25))

    assert failures.read_error_file(str(path)) == ("boom", "", 7.25)


def test_no_error_file(tmp_path: Path) -> None:
    """A worker that left nothing has no message."""
    assert failures.read_error_file(str(tmp_path / "none")) == ("", "", None)


@given(
    reason=st.text(max_size=3000),
    error=st.text(max_size=6000),
    traceback=st.text(max_size=9000),
    host=st.text(max_size=300),
)
def test_the_termination_message_fits(reason: str, error: str, traceback: str, host: str) -> None:
    """For any failure the message is JSON of at most 4096 bytes with code and rank."""
    report = dataclasses.replace(FAILURE, error=error, traceback=traceback, host=host).report()
    text = failures.termination_message(1, reason, report)
    message = json.loads(text)

    assert len(text.encode()) <= failures.MESSAGE_BYTES
    assert (message["exit_code"], message["rank"]) == (1, 3)


def test_a_long_traceback_keeps_its_end() -> None:
    """The last lines of a traceback say what failed, so they are what is kept."""
    report = dataclasses.replace(FAILURE, traceback="x" * 9000 + "the last line").report()

    assert json.loads(failures.termination_message(1, "r", report))["traceback"].endswith("the last line")


def test_written_only_where_the_kubelet_reads(tmp_path: Path) -> None:
    """The message goes into an existing file and makes none."""
    failures.write_termination_message(str(tmp_path / "absent"), "text")
    present = tmp_path / "present"
    present.touch()
    failures.write_termination_message(str(present), "text")

    assert not (tmp_path / "absent").exists()
    assert present.read_text() == "text"


def test_torchruns_own_error_file(tmp_path: Path) -> None:
    """The launcher's error file is one that torch reads."""
    path = tmp_path / "error.json"
    failures.write_error_file(str(path), FAILURE.report())

    assert failures.read_error_file(str(path))[:2] == ("ValueError: no data", "Traceback ...")


@pytest.mark.parametrize("text", ["x" * (3 << 20), "half a character: \udc80"])
def test_any_exception_can_be_told(tmp_path: Path, text: str) -> None:
    """What is read of an error file goes into the job's record and into files: short, and of whole characters."""
    path = tmp_path / "error.json"
    path.write_text(json.dumps({"message": {"message": text, "extraInfo": {"py_callstack": text}}}))
    error, trace, _ = failures.read_error_file(str(path))

    assert (error[:8], error[-8:]) == (text[:8].replace("\udc80", "?"), text[-8:].replace("\udc80", "?"))
    assert len(error.encode()) <= failures.ERROR_CHARACTERS
    assert len(trace.encode()) <= failures.TRACE_CHARACTERS


@given(st.text(st.characters(exclude_categories=())), st.integers(20, 60))
def test_an_excerpt_is_short_and_can_be_written(text: str, most: int) -> None:
    """Of any text; a short one of whole characters is kept."""
    excerpt = failures.excerpt(text, most)

    excerpt.encode()
    assert len(excerpt) <= most
    assert len(text) > most or excerpt == text.encode(errors="replace").decode()


def test_a_full_disk_changes_no_exit_code(tmp_path: Path) -> None:
    """The message is for the kubelet to show; the code decides whether the pod is made again."""
    failures.leave_behind(143, "half a character: \udc80", {}, "/dev/full", {})
    present = tmp_path / "present"
    present.touch()
    failures.leave_behind(143, "half a character: \udc80", {}, str(present), {})

    assert json.loads(present.read_text())["reason"] == "half a character: ?"
