"""How a training script tells the launcher where it is, and learns when to save and stop.

Every call costs about a microsecond (a few writes to shared memory) and does nothing outside the launcher, so a
script may call it unconditionally. It never raises because of the launcher and never imports torch.
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
"""How often a worker that waits for the other nodes' consent looks again."""


class Progress:
    """Reports steps, phases and checkpoints of one worker.

    Usage::

        progress = Progress()
        for n in range(first, last):
            train_one_step()
            if progress.step(n):
                save(n)
                break
        if not progress.stopped:
            evaluate_and_export()
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

    def step(self, n: int) -> bool:
        """Report that step ``n`` is done; True means save and stop now.

        Every rank must report the same numbers in the same order. All ranks of the job get True at the same ``n``;
        a rank that comes there before every node has agreed waits for it.
        """
        slot = self._slot
        self._times[memory.AT] = time.monotonic()
        slot[memory.STEP] = n
        slot[memory.REPORTS] += 1
        stop = self._header[memory.STOP]
        if stop < 0 or n < stop >> 1:
            return False
        return self._wait_for_consent(n)

    @contextlib.contextmanager
    def phase(self, name: str, timeout: float | None = None) -> Iterator[None]:
        """Suspend the rule about steps while evaluating, compiling or saving.

        Args:
            name: what is done, for readers of the script.
            timeout: seconds after which the phase itself counts as a hang; None means never.
        """
        del name  # the source line says it; the launcher needs only the time
        before = self._times[memory.PHASE_UNTIL]
        self._times[memory.PHASE_UNTIL] = math.inf if timeout is None else time.monotonic() + timeout
        self._slot[memory.PHASES] += 1
        try:
            yield
        finally:
            self._times[memory.PHASE_UNTIL] = before
            self._times[memory.AT] = time.monotonic()
            self._slot[memory.PHASES] -= 1

    def checkpoint(self, n: int) -> None:
        """Report that everything up to step ``n`` is saved; newcomers are best let in right after."""
        self._slot[memory.CHECKPOINT] = n

    @property
    def stopped(self) -> bool:
        """Whether ``step`` has said stop: training goes on in other workers, so it is not over.

        What comes after the last step (evaluation, export) is for the workers that see False here; those that are
        stopped only save and end. False outside the launcher.
        """
        return bool(self._slot[memory.STOPPED])

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
