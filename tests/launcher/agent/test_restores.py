"""From where workers went on, and the steps that were lost, as they are found in the progress memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastic_infra.launcher.agent.restores import Restore, Watch
from elastic_infra.launcher.workers.progress import Memory
from elastic_infra.training import Progress


@pytest.fixture
def shared(tmp_path: Path) -> Memory:
    """The memory of a node with two workers."""
    return Memory.create(str(tmp_path / "progress"), slots=2)


def workers(shared: Memory) -> tuple[Progress, Progress]:
    """Both workers, as they are after a start."""
    return Progress(shared.variable(0)), Progress(shared.variable(1))


def test_a_restore_is_told_once_when_all_workers_have_their_state(shared: Memory) -> None:
    """The farthest source of the node's workers counts."""
    first, second = workers(shared)
    watch = Watch()

    first.restored(7, "memory")
    assert watch.look(1, shared.read()) is None
    second.restored(7, "peer")
    assert watch.look(1, shared.read()) == Restore(7, "peer", 0)
    assert watch.look(1, shared.read()) is None


def test_steps_above_the_restored_one_are_lost(shared: Memory) -> None:
    """Those of the generation before, also where the new one has made steps by then; each is counted once."""
    watch = Watch()
    for generation, (highest, restored) in enumerate([(20, 0), (30, 12), (31, 29)], 1):
        shared.forget_steps(kept=(0, 1))
        for worker in workers(shared):
            worker.restored(restored, "disk")
            worker.step(restored + 1)
        expected = {1: 0, 2: 8, 3: 1}[generation]
        assert watch.look(generation, shared.read()) == Restore(restored, "disk", expected)
        for worker in workers(shared):
            worker.step(highest)
        assert watch.look(generation, shared.read()) is None


def test_a_script_that_does_not_say_is_not_guessed_at(shared: Memory) -> None:
    """Steps alone give no restore, and another word than the known ones is refused."""
    first, second = workers(shared)
    first.step(1)
    second.step(1)

    assert Watch().look(1, shared.read()) is None
    with pytest.raises(ValueError, match="tape"):
        first.restored(1, "tape")
