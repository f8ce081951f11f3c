"""The agent's side of the progress memory: its layout, and what is read from it."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_infra.launcher.workers import progress
from elastic_infra.launcher.workers.progress import Memory, Slot

EMPTY = Slot(step=None, at=0.0, reports=0, checkpoint=None, stopped=False, phase_until=None)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    memory = Memory.create(str(tmp_path / "progress"), slots=2)
    yield memory
    memory.close()


def put(memory: Memory, slot: int, word: int, packed: bytes) -> None:
    """Write one word of a slot, as a worker does."""
    place = ((slot + 1) * progress.WORDS + word) * 8
    with Path(memory.path).open("r+b") as file:
        file.seek(place)
        file.write(packed)


def test_a_new_memory_holds_nothing(memory: Memory) -> None:
    """No step, no checkpoint, no stop."""
    assert memory.read() == (EMPTY, EMPTY)
    assert Path(memory.path).stat().st_size == 3 * progress.WORDS * 8
    assert Path(memory.path).stat().st_mode & 0o777 == 0o600


def test_a_slot_is_its_workers_own(memory: Memory) -> None:
    """Every field at its place, in the slot of its local rank."""
    for word, value in ((progress.STEP, 7), (progress.CHECKPOINT, 5), (progress.STOPPED, 1), (progress.REPORTS, 3)):
        put(memory, 1, word, struct.pack("q", value))
    put(memory, 1, progress.AT, struct.pack("d", 2.5))

    assert memory.read() == (EMPTY, Slot(step=7, at=2.5, reports=3, checkpoint=5, stopped=True, phase_until=None))


def test_the_end_of_a_phase_counts_only_inside_of_one(memory: Memory) -> None:
    """The word keeps its last value when the phase is over."""
    put(memory, 0, progress.PHASE_UNTIL, struct.pack("d", 99.0))
    outside = memory.read()[0].phase_until
    put(memory, 0, progress.PHASES, struct.pack("q", 1))

    assert (outside, memory.read()[0].phase_until) == (None, 99.0)


@pytest.mark.parametrize(
    ("step", "agreed", "word"), [(None, False, progress.NONE), (0, False, 0), (3, False, 6), (3, True, 7)]
)
def test_the_stop_step_and_the_consent_are_one_word(memory: Memory, step: int | None, agreed: bool, word: int) -> None:
    """A worker can never pair an old step with a new consent."""
    memory.set_stop(step, agreed=agreed)

    assert struct.unpack("q", Path(memory.path).read_bytes()[:8]) == (word,)


@pytest.mark.parametrize("value", ["", "1", ":path", "x:path", "1:"])
def test_a_worker_finds_its_place(memory: Memory, value: str) -> None:
    """By one variable; without it, or with another value, there is none."""
    assert progress.locate(memory.variable(1)) == (memory.path, 1)
    assert progress.locate({progress.VARIABLE: value}) is None
    assert progress.locate({}) is None


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """It shows where the memory is made, not in a worker."""
    with pytest.raises(OSError, match="No such file") as failed:
        Memory.create(str(tmp_path / "gone" / "progress"), slots=1)

    assert failed.value.errno == errno.ENOENT


def test_its_file_goes_with_it(tmp_path: Path) -> None:
    """Nothing stays in the run's folder."""
    Memory.create(str(tmp_path / "progress"), slots=1).close()

    assert list(tmp_path.iterdir()) == []
