"""The number of failed saves and the time of the newest, over all generations of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_infra.launcher.agent.saves import Watch
from elastic_infra.launcher.workers.progress import Memory
from elastic_infra.training import Progress


def test_failures_of_all_generations_are_counted(tmp_path: Path) -> None:
    """A save that fails on each of a node's workers is one; workers that were started anew count from zero."""
    watch = Watch()
    for generation in range(3):
        shared = Memory.create(str(tmp_path / f"progress-{generation}"), slots=2)
        watch.look(shared.read())
        for _ in range(2):
            for worker in (0, 1):
                Progress(shared.variable(worker)).checkpoint_failed()
            watch.look(shared.read())
        shared.forget_steps(kept=(0, 1))
        watch.look(shared.read())

    assert watch.failed == 6


@pytest.mark.parametrize("seconds", [None, 2.5])
def test_the_slowest_worker_says_how_long_a_save_took(tmp_path: Path, seconds: float | None) -> None:
    """And the time stays known in the next generation, until that saves."""
    shared, watch = Memory.create(str(tmp_path / "progress"), slots=2), Watch()
    for worker in (0, 1):
        Progress(shared.variable(worker)).checkpoint(7, seconds and seconds * (worker + 1))
    watch.look(shared.read())
    watch.look(Memory.create(str(tmp_path / "next"), slots=1).read())

    assert watch.seconds == (seconds and 5.0)
    assert [slot.checkpoint for slot in shared.read()] == [7, 7]
