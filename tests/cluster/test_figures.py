"""What the side-by-side table says of a job's steps."""

from __future__ import annotations

from typing import Any

from benchmarks.cluster import figures


def line(step: int, time: float, rank: int = 0) -> dict[str, Any]:
    """A line as the toy writes it."""
    return {"step": step, "time": time, "rank": rank}


def test_the_outage_is_the_longest_time_without_a_step() -> None:
    """Any worker's step counts, time before the event does not, and the wait after the event does."""
    lines = [line(1, 0.0), line(2, 50.0), line(3, 58.0), line(2, 51.0, rank=1), line(4, 59.0)]

    assert figures.outage(lines, 49.0) == 7.0
    assert figures.outage(lines, 40.0) == 10.0


def test_training_that_never_goes_on_costs_until_it_is_given_up() -> None:
    """A job that is lost has no next step: the wait's end stands for it."""
    assert figures.outage([line(1, 0.0), line(2, 3.0)], 1.0, end=103.0) == 100.0


def test_a_step_that_is_done_again_was_lost() -> None:
    """Only the first worker's steps count, however many workers there are."""
    lines = [line(1, 1), line(2, 2), line(3, 3), line(2, 4), line(3, 5), line(4, 6), line(4, 6, rank=1)]

    assert figures.lost(lines) == 2
