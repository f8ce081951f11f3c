"""The progress memory, in which workers report steps and read when to stop: its layout, and the agent's side.

One small file a generation, mapped by the agent and by every worker of the node, one slot a local rank. Each field is
eight aligned bytes with one writer, so no lock is needed. The workers' side is ``elastic_infra.training.Progress``.
This module does not interpret the numbers; ``hang_detection`` does.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
from collections.abc import Collection, Mapping
from typing import Final

VARIABLE: Final = "ELASTIC_INFRA_PROGRESS"
"""``SLOT:PATH`` in a worker's environment (wire contract)."""

NONE: Final = -1
"""A step field that holds no step."""

WORDS: Final = 16
"""Eight-byte words of the header and of each slot: two cache lines, so that ranks do not share one."""

STOP: Final = 0
"""The header's word, written by the agent: ``NONE``, or twice the stop step, plus one once every node has agreed.
One word holds both, so that no worker can pair an old step with a new consent."""
LEAVING: Final = 1
"""The header's word, written by the agent: 1 once this node was told to leave the job, else 0."""

# Words of a slot, written by its worker. AT, PHASE_UNTIL, OPTIMIZED_AT, FAILED_AT and FIRST_AT hold seconds of
# CLOCK_MONOTONIC as doubles, and SAVE_SECONDS a duration as a double.
STEP, AT, CHECKPOINT, STOPPED, PHASES, PHASE_UNTIL, REPORTS, OPTIMIZED_AT, FAILED_AT, RESTORED = range(10)
FAILED_SAVES, SAVE_SECONDS, SAMPLES, SNAPSHOT, FIRST_AT = range(10, 15)

SOURCES: Final = ("process", "memory", "peer", "disk", "nothing")
"""Where a state comes from, the nearest first; ``RESTORED`` holds the step times ``_SOURCE_BASE`` plus the index."""
_SOURCE_BASE: Final = 8


@dataclasses.dataclass(frozen=True)
class Slot:
    """What one worker has reported."""

    step: int | None
    """The newest step, or None before the first."""
    at: float
    """CLOCK_MONOTONIC of the last report; 0 before the first."""
    reports: int
    """Number of steps reported."""
    checkpoint: int | None
    """The newest step that the script reported as saved."""
    stopped: bool
    """Whether ``step`` has told this worker to stop."""
    phase_until: float | None
    """The end of the worker's current phase, ``inf`` for a phase without a timeout; None outside of phases."""
    optimized_at: float | None = None
    """CLOCK_MONOTONIC of the first ``optimizer.step``, which ``bootstrap`` notes; None before it."""
    failed_at: float | None = None
    """CLOCK_MONOTONIC of the exception that left the script; the process may take seconds more to end."""
    restored: tuple[int, str] | None = None
    """The step from which this worker went on, and where its state came from; None before that, or unreported."""
    failed_saves: int = 0
    """Number of checkpoints that this worker could not save."""
    save_seconds: float | None = None
    """Seconds that the newest checkpoint took to save; None before it, or unreported."""
    samples: int | None = None
    """Number of samples on which the job has trained up to ``step``, over all epochs; None where unreported."""
    snapshot: int | None = None
    """The step of the newest snapshot that this worker has put into the node's memory."""
    first_at: float | None = None
    """CLOCK_MONOTONIC of the first report of this generation; None before it, and from an older library."""

    @property
    def stepped_at(self) -> float | None:
        """When the worker made its first step, as far as this look shows; None before the step."""
        return self.first_at or (self.at if self.step is not None else self.optimized_at)


class Memory:
    """The agent's side of one generation's progress file."""

    def __init__(self, path: str, mapped: mmap.mmap, slots: int) -> None:
        self.path = path
        self.slots = slots
        self._mapped = mapped
        self._integers = memoryview(mapped).cast("q")
        self._reals = memoryview(mapped).cast("d")

    @classmethod
    def create(cls, path: str, slots: int) -> Memory:
        """Make the file with every slot empty.

        Raises:
            OSError: the file cannot be made. Its space is reserved, so that a full disk fails here and not in a worker.
        """
        size = (slots + 1) * WORDS * 8
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            memory = cls(path, mmap.mmap(descriptor, size), slots)
        finally:
            os.close(descriptor)
        memory.set_stop(None, agreed=False)
        for slot in range(1, slots + 1):
            for word in (STEP, CHECKPOINT, RESTORED, SAMPLES, SNAPSHOT):
                memory._integers[slot * WORDS + word] = NONE
        return memory

    def variable(self, slot: int) -> dict[str, str]:
        """The value of ``VARIABLE`` for the worker of this slot."""
        return {VARIABLE: f"{slot}:{self.path}"}

    def set_stop(self, step: int | None, *, agreed: bool) -> None:
        """Propose, agree or withdraw the step at which every worker stops."""
        self._integers[STOP] = NONE if step is None else 2 * step + int(agreed)

    def set_leaving(self) -> None:
        """Tell the workers that their node leaves the job."""
        self._integers[LEAVING] = 1

    def forget_steps(self, kept: Collection[int]) -> None:
        """Empty every slot for the steps of another generation; the workers are parked and write none.

        What is known of checkpoints stays, since the thread that saves may still report.

        Args:
            kept: local ranks of the workers that live on; the phase and the error of the others ended with them.
        """
        for local_rank in range(self.slots):
            base = (local_rank + 1) * WORDS
            ended = local_rank not in kept
            for word in (STEP, RESTORED, SAMPLES):
                self._integers[base + word] = NONE
            for word in (STOPPED, REPORTS, *((PHASES,) if ended else ())):
                self._integers[base + word] = 0
            for word in (AT, OPTIMIZED_AT, FIRST_AT, *((PHASE_UNTIL, FAILED_AT) if ended else ())):
                self._reals[base + word] = 0.0

    def read(self) -> tuple[Slot, ...]:
        """Every slot, in the order of the local ranks."""
        return tuple(self._slot(index * WORDS) for index in range(1, self.slots + 1))

    def close(self) -> None:
        """Unmap and delete the file; workers that still map it keep their view."""
        self._integers.release()
        self._reals.release()
        self._mapped.close()
        if os.path.exists(self.path):
            os.unlink(self.path)

    def _slot(self, base: int) -> Slot:
        words = self._integers
        return Slot(
            step=_or_none(words[base + STEP]),
            at=self._reals[base + AT],
            reports=words[base + REPORTS],
            checkpoint=_or_none(words[base + CHECKPOINT]),
            stopped=bool(words[base + STOPPED]),
            phase_until=self._reals[base + PHASE_UNTIL] if words[base + PHASES] else None,
            optimized_at=self._reals[base + OPTIMIZED_AT] or None,
            failed_at=self._reals[base + FAILED_AT] or None,
            restored=_restored(words[base + RESTORED]),
            failed_saves=words[base + FAILED_SAVES],
            save_seconds=self._reals[base + SAVE_SECONDS] or None,
            samples=_or_none(words[base + SAMPLES]),
            snapshot=_or_none(words[base + SNAPSHOT]),
            first_at=self._reals[base + FIRST_AT] or None,
        )


def locate(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Path and slot of this worker, or None outside the launcher."""
    slot, _, path = environ.get(VARIABLE, "").partition(":")
    return (path, int(slot)) if path and slot.isdecimal() else None


def restored_word(step: int, source: str) -> int:
    """A step and the source of its state as one word.

    Raises:
        ValueError: the source is none of ``SOURCES``.
    """
    if source not in SOURCES:
        message = f"{source!r} is no source of a state: {', '.join(SOURCES)}."
        raise ValueError(message)
    return step * _SOURCE_BASE + SOURCES.index(source)


def _restored(word: int) -> tuple[int, str] | None:
    step, source = divmod(word, _SOURCE_BASE)
    return (step, SOURCES[source]) if word != NONE and source < len(SOURCES) else None


def _or_none(step: int) -> int | None:
    return None if step == NONE else step
