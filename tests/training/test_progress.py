"""Progress reaches the agent, and the stop step reaches the script."""

from __future__ import annotations

import math
import threading
import timeit
from pathlib import Path

import pytest

from elastic_infra.launcher.workers.progress import Memory, Slot
from elastic_infra.training import Progress

EMPTY = Slot(step=None, at=0.0, reports=0, checkpoint=None, stopped=False, phase_until=None)


@pytest.fixture
def shared(tmp_path: Path) -> Memory:
    """The memory of a node with two workers."""
    return Memory.create(str(tmp_path / "progress"), slots=2)


def test_reports_reach_their_own_slot(shared: Memory) -> None:
    """A worker's step and checkpoint are read in its slot and in no other."""
    progress = Progress(shared.variable(1))

    assert progress.step(7) is False
    progress.checkpoint(5)
    first, second = shared.read()
    assert first == EMPTY
    assert (second.step, second.checkpoint, second.reports) == (7, 5, 1)
    assert second.at > 0


def test_the_moment_of_the_first_report_is_kept(shared: Memory) -> None:
    """However late it is read; workers that are kept for another generation report theirs anew."""
    progress = Progress(shared.variable(0))
    progress.step(4)
    first = shared.read()[0].at
    progress.step(5)
    late = shared.read()[0]
    shared.forget_steps(kept={0})
    emptied = shared.read()[0]
    progress.step(6)
    again = shared.read()[0]

    assert (late.first_at, late.stepped_at) == (first, first)
    assert late.at > first
    assert (emptied.first_at, emptied.stepped_at) == (None, None)
    assert again.first_at == again.at


def test_stop_step(shared: Memory) -> None:
    """Once agreed, step returns True at the stop step and not before it."""
    progress = Progress(shared.variable(0))
    shared.set_stop(3, agreed=True)

    assert [progress.step(n) for n in range(1, 4)] == [False, False, True]
    assert progress.stopped
    assert shared.read()[0].stopped


def test_waits_until_all_nodes_agree(shared: Memory) -> None:
    """A worker that comes to a stop step before the nodes agreed on the step waits, and stops when it is agreed."""
    progress = Progress(shared.variable(0))
    shared.set_stop(3, agreed=False)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(progress.step(3)))
    thread.start()
    while shared.read()[0].step != 3:
        threading.Event().wait(0.001)

    assert not answers
    shared.set_stop(3, agreed=True)
    thread.join()
    assert answers == [True]


@pytest.mark.parametrize("changed", [None, 9])
def test_goes_on_when_the_stop_is_withdrawn_or_raised(shared: Memory, changed: int | None) -> None:
    """A waiting worker trains on when the stop step moves past it or goes away."""
    progress = Progress(shared.variable(0))
    shared.set_stop(3, agreed=False)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(progress.step(3)))
    thread.start()
    shared.set_stop(changed, agreed=False)
    thread.join()

    assert answers == [False]


def test_phases_nest(shared: Memory) -> None:
    """Inside a phase its end is readable, an inner phase returns to the outer one, and afterwards there is none."""
    progress = Progress(shared.variable(0))
    with progress.phase("eval"):
        outer = shared.read()[0].phase_until
        with progress.phase("save", timeout=60):
            inner = shared.read()[0].phase_until
        again = shared.read()[0].phase_until

    assert (outer, again) == (math.inf, math.inf)
    assert inner is not None
    assert math.isfinite(inner)
    assert shared.read()[0].phase_until is None


def test_nothing_happens_outside_the_launcher() -> None:
    """Without the launcher every call works and never asks to stop."""
    progress = Progress({})
    with progress.phase("eval", timeout=1):
        progress.checkpoint(1)

    assert progress.step(1) is False
    assert progress.stopped is False


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_step_costs_less_than_five_microseconds(shared: Memory, where: str) -> None:
    """step(n) is cheap enough for every training step; the best of many rounds leaves other load out."""
    progress = Progress(shared.variable(0) if where == "inside" else {})

    assert min(timeit.repeat(lambda: progress.step(1), number=1000, repeat=20)) / 1000 < 5e-6
