"""What the launcher's table says of its samples, and what the journal says of an event."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from benchmarks.launcher import arms, measure, report, requirements, scenario, sockets
from benchmarks.launcher.measure import Sample, Summary


def step(time: float, *, rank: int = 0, world: int = 1, pid: int = 1) -> dict[str, Any]:
    """A line as the workers write it."""
    return {"event": "step", "time": time, "rank": rank, "world": world, "pid": pid}


def values(*numbers: float, **without: int) -> Summary:
    """So many runs with a figure, and so many without."""
    return Summary(numbers, without)


def line(row: str, *samples: Sample, import_seconds: float = 3.0) -> list[str]:
    """The row's cells in the document."""
    text = report.document(report.results(samples, ["a machine"], import_seconds))
    found = next(each for each in text.splitlines() if each.startswith(f"| {row} |"))
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def runs(row: str, arm: str, *numbers: float | None) -> list[Sample]:
    """Samples of one row and arm; None is a lost run."""
    return [Sample(row, arm, number) for number in numbers]


def test_a_group_trains_when_each_rank_has_made_its_steps() -> None:
    """Ranks of the old group do not count, nor do steps before the event or in a group of another size."""
    many = measure.STEPS_TO_BE_BACK
    new = [step(5.0 + n, rank=rank, world=2, pid=10 + rank) for n in range(many) for rank in range(2)]

    assert measure.trains(new, 5.0, 2, {1})
    assert not measure.trains(new[:-1], 5.0, 2, {1})
    assert not measure.trains(new, 5.5, 2, {1})
    assert not measure.trains(new, 5.0, 2, {10})
    assert not measure.trains(new, 5.0, 3, {1})


def test_an_outage_begins_at_the_event() -> None:
    """The first step of any worker ends an outage: workers that train on while a newcomer gets ready are no outage."""
    steps = [step(1.0), step(9.0, pid=2), step(10.0), step(10.5, rank=1)]

    assert measure.outage(steps, 6.0) == 3.0
    assert measure.outage(steps, 9.0) == 1.0


@pytest.mark.parametrize(("number", "p95"), [(1, 1.0), (19, 19.0), (20, 19.0), (100, 95.0)])
def test_p95_is_by_nearest_rank(number: int, p95: float) -> None:
    """It is a value that was measured; of fewer than 20 it is the largest."""
    assert values(*map(float, range(1, number + 1))).p95 == p95


def test_runs_without_a_figure_are_counted_beside() -> None:
    """They enter no median."""
    summary = measure.summary([*runs("r", "ours", 2.0, None, 4.0), *runs("r", "plain", 9.0)], "r", "ours")

    assert (summary.median, summary.runs, summary.without) == (3.0, 3, {"lost": 1})


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        (values(1.0, 2.0, 4.0), "2.00 s (p95 4.00, n 3)"),
        (values(123.4), "123 s (p95 123, n 1)"),
        (values(1.0, lost=1), "1.00 s (p95 1.00, n 1); lost 1 of 2"),
        (values(lost=2), "lost 2 of 2"),
        (values(never=1), "never"),
        (values(), "-"),
    ],
)
def test_a_cell_says_how_many_runs_it_stands_for(summary: Summary, text: str) -> None:
    """Median, p95, n, and what became of the others."""
    assert report.cell(summary, "s") == text


@pytest.mark.parametrize(
    ("ours", "control", "text"),
    [
        (values(2.0), values(80.0), "1/40.0"),
        (values(2.0), values(lost=2), "lost"),
        (values(2.0), values(), "-"),
        (values(lost=1), values(9.0), "-"),
    ],
)
def test_a_ratio_is_of_medians(ours: Summary, control: Summary, text: str) -> None:
    """A control that never came back has no number to be compared with."""
    assert report.ratio(ours, control) == text


@pytest.mark.parametrize(
    ("ours", "tuned", "plain", "met"),
    [
        ([2.0], [7.0], [80.0], "yes"),
        ([2.0], [7.0], [None], "yes"),
        ([2.5], [7.0], [80.0], "**no**"),
        ([2.0], [7.0], [39.0], "**no**"),
        ([3.5], [12.0], [80.0], "**no**"),
        ([2.0, None], [7.0], [80.0], "**no**"),
        ([2.0], [7.0], [], "yes, as far as measured"),
        ([2.0], [], [], "yes, as far as measured"),
        ([3.5], [], [], "**no**"),
    ],
)
def test_an_outage_is_held_against_both_controls_and_the_import(
    ours: list[float | None], tuned: list[float | None], plain: list[float | None], met: str
) -> None:
    """Every aim of a row must be met, in every run; of a control that was not run the row says that it is not known."""
    row = "scale up 2 to 3"
    samples = [*runs(row, "ours", *ours), *runs(row, "tuned", *tuned), *runs(row, "plain", *plain)]

    of_plain, of_tuned = ("" if runs_of else " (not measured)" for runs_of in (plain, tuned))

    assert line(row, *samples)[-2:] == [f"1/20 of plain{of_plain}, 1/3 of tuned{of_tuned}, <= 3.00 s", met]


def test_an_outage_may_take_as_long_as_importing_torch() -> None:
    """A slow machine imports slowly; a fast one is not held to less than the usual."""
    row = "scale down 3 to 2"
    sample = Sample(row, "ours", 3.5)

    assert line(row, sample, import_seconds=4.0)[-2:] == ["<= 4.00 s", "yes"]
    assert line(row, sample, import_seconds=1.0)[-2:] == ["<= 3.00 s", "**no**"]


def test_some_aims_are_for_p95() -> None:
    """Where a requirement names the slowest of many."""
    row = "R4 worker killed to sibling told"

    assert line(row, *runs(row, "ours", 0.01, 0.02, 0.3))[-2:] == ["p95 <= 0.10 s", "**no**"]


def test_only_what_was_measured_is_shown() -> None:
    """A run of one part makes a table of one part."""
    text = report.document(report.results([Sample("restart of 2 workers", "ours", 0.5)], [], 3.0))

    assert "restart of 2 workers" in text
    assert "scale" not in text.partition("An outage")[0]


def test_every_event_has_its_row() -> None:
    """What is measured is reported."""
    shown = {row.name for row in report.ROWS}
    events = {event.row for chain in scenario.CHAINS for event in chain.events}

    assert events <= shown
    assert len({each.name for each in requirements.REQUIREMENTS}) == len(requirements.REQUIREMENTS)


@pytest.mark.parametrize("workers", [2, 8])
def test_nodes_of_more_workers_are_measured(workers: int) -> None:
    """Real nodes have eight: a start, a node that comes, one that is lost and a crash have their rows for them."""
    shown = [event.row for chain in scenario.CHAINS for event in chain.events if chain.launch.workers == workers]

    assert len(shown) == len(set(shown))
    assert {
        f"start of {workers} workers on a node",
        f"scale up {workers} to {2 * workers} workers",
        f"lost node, {2 * workers} to {workers} workers",
        f"restart of {workers} workers",
    } <= set(shown)


def test_an_event_follows_where_the_last_one_left_off() -> None:
    """A chain's next event finds the number of workers that it needs."""
    for chain in scenario.CHAINS:
        for first, second in zip(chain.events, chain.events[1:], strict=False):
            assert first.after == second.before, chain.name


def test_arms_differ_only_in_what_makes_them_arms() -> None:
    """All are told the same; the tuned one also gets its last call."""
    launch = arms.Launch("1:3")
    ours, tuned, plain = (arms.arguments(arm, launch, 29400) for arm in arms.ARMS)

    assert ours == plain
    assert tuned == (*plain, "--rdzv-conf", "last_call_timeout=3")


def test_who_listens_on_a_port() -> None:
    """Only the process that has the listening socket, and only while it has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert sockets.listens([os.getpid()], port)
            assert not sockets.listens([os.getppid()], port)

    assert not sockets.listens([os.getpid()], port)
