"""How a training script reports its progress to the launcher, and learns when to save and stop.

Every call costs about a microsecond (a few writes to shared memory) and does nothing outside the launcher, so a
script may call it unconditionally. No call raises because of the launcher, and none imports torch.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import time
from collections.abc import Iterator, Mapping
from typing import Final

from ..launcher.workers import progress as memory

_WAIT_SECONDS: Final = 0.001
"""Seconds between two looks of a worker that waits for the other nodes' consent."""


class Progress:
    """Reports steps, phases and checkpoints of one worker to the launcher, through shared memory.

    Usage::

        progress = Progress()
        progress.restored(first - 1)
        for n in range(first, last):
            train_one_step()
            if progress.step(n):
                save(n)
                break
        if not progress.stopped:
            evaluate_and_export()

    Args:
        environ: the variables in which the launcher names the memory; by default ``os.environ``. Without them (outside
            the launcher) every call does nothing and ``step`` returns False.

    Raises:
        OSError: the memory that the launcher named cannot be opened.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        place = memory.locate(environ)
        words = _map(place[0]) if place else memoryview(bytearray(2 * memory.WORDS * 8))
        first = (place[1] + 1 if place else 1) * memory.WORDS
        last = first + memory.WORDS
        self._header = words.cast("q")[: memory.WORDS]
        self._slot = words.cast("q")[first:last]
        self._times = words.cast("d")[first:last]
        if place is None:
            self._header[memory.STOP] = memory.NONE

    def step(self, n: int, samples: int | None = None) -> bool:
        """Report that step ``n`` is done; True means save and stop now.

        Every rank must report the same numbers in the same order. All ranks of the job get True at the same ``n``;
        a rank that reaches ``n`` before every node has agreed waits for the agreement.

        Args:
            n: number of the step, counted by one from the step at which training began or was restored. The launcher
                measures progress, lost steps and hangs by it.
            samples: number of samples on which the job has trained up to this step, over all ranks and epochs, for
                ``/metrics``. None, the default: not known.

        Returns:
            Whether the script must save its state and leave the loop: the job then goes on in other workers.
        """
        slot = self._slot
        now = self._times[memory.AT] = time.monotonic()
        if not slot[memory.REPORTS]:
            self._times[memory.FIRST_AT] = now
        slot[memory.STEP] = n
        if samples is not None:
            slot[memory.SAMPLES] = samples
        slot[memory.REPORTS] += 1
        stop = self._header[memory.STOP]
        if stop < 0 or n < stop >> 1:
            return False
        return self._wait_for_consent(n)

    @contextlib.contextmanager
    def phase(self, name: str, timeout: float | None = None) -> Iterator[None]:
        """Suspend the rule about steps while evaluating, compiling or saving.

        Args:
            name: name of the work, for readers of the script; the launcher does not use it.
            timeout: seconds after which the phase itself counts as a hang; None, the default, means never.
        """
        del name  # for readers of the source; the launcher needs only the time
        before = self._times[memory.PHASE_UNTIL]
        self._times[memory.PHASE_UNTIL] = math.inf if timeout is None else time.monotonic() + timeout
        self._slot[memory.PHASES] += 1
        try:
            yield
        finally:
            self._times[memory.PHASE_UNTIL] = before
            self._times[memory.AT] = time.monotonic()
            self._slot[memory.PHASES] -= 1

    def checkpoint(self, n: int, seconds: float | None = None) -> None:
        """Report that all steps up to ``n`` are saved; the launcher prefers to admit newcomers right after.

        Args:
            n: number of the last step in the checkpoint, as given to ``step``.
            seconds: how long the saving took, for ``/metrics``. None, the default: not known.
        """
        if seconds is not None:
            self._times[memory.SAVE_SECONDS] = seconds
        self._slot[memory.CHECKPOINT] = n

    def checkpoint_failed(self) -> None:
        """Report that a checkpoint could not be saved, and training goes on; the launcher shows the number of these."""
        self._slot[memory.FAILED_SAVES] += 1

    def snapshot(self, n: int) -> None:
        """Report that the state after step ``n`` is in the node's memory, where it survives the workers."""
        self._slot[memory.SNAPSHOT] = n

    def restored(self, n: int, source: str | None = None) -> None:
        """Report the state from which training goes on; the launcher shows the source, and the steps that are lost.

        Args:
            n: number of steps that are done in this state; 0 at the beginning.
            source: where the state comes from: "process", "memory", "peer", "disk" or "nothing". None, the default:
                from disk, or from nothing where no step is done.

        Raises:
            ValueError: the source is another word.
        """
        self._slot[memory.RESTORED] = memory.restored_word(n, source or ("disk" if n else "nothing"))

    @property
    def stopped(self) -> bool:
        """Whether ``step`` has returned True: training is not over, but goes on in other workers.

        Work after the last step (evaluation, export) is for workers that see False here; stopped workers only save and
        end. False outside the launcher.
        """
        return bool(self._slot[memory.STOPPED])

    @property
    def leaving(self) -> bool:
        """Whether this worker's node was told to leave the job: preempted, scaled away, or deleted.

        Where ``stopped`` is True and this is False, only other nodes come or go. False outside the launcher.
        """
        return bool(self._header[memory.LEAVING])

    def _wait_for_consent(self, n: int) -> bool:
        while (stop := self._header[memory.STOP]) >= 0 and stop >> 1 <= n:
            if stop & 1:
                self._slot[memory.STOPPED] = 1
                return True
            time.sleep(_WAIT_SECONDS)
        return False


def _map(path: str) -> memoryview:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, 0))
    finally:
        os.close(descriptor)
