"""The stacks of workers that hang, written one worker after the other: on one stderr their lines would mix.

Workers that are to end are stopped (SIGSTOP) until their turn: the end of one worker makes its peers' collectives
fail, and the peers' stacks would show that failure instead of the hang. Whether stacks are written is decided
elsewhere.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping
from typing import Final

from .. import console, processes

WRITE_SECONDS: Final = 1.0
"""Time for one worker to write, where milliseconds are usual; a worker that cannot write must not block the others."""

DUMP_SIGNAL: Final = signal.SIGRTMIN + 7
"""The bootstrap's handler writes the stacks of all threads; sent only to processes that have a handler for it."""


@dataclasses.dataclass
class Dump:
    """Workers that write their stacks in turn."""

    number: int
    """The signal that asks a worker for its stacks."""
    waiting: list[tuple[int, int]]
    """(pid, local rank) of the workers still to be asked."""
    asked: int = 0
    """Pid of the worker asked last; 0 before the first."""
    until: float = 0.0
    """CLOCK_MONOTONIC at which that worker's time is over."""

    @property
    def ends_workers(self) -> bool:
        """Whether a worker that has written is dead."""
        return self.number == signal.SIGABRT

    def is_over(self, alive: Mapping[int, int], now: float) -> bool:
        """Whether every worker has written, or had the time to."""
        return not self.waiting and (self.asked not in alive or now >= self.until)

    def go_on(self, alive: Mapping[int, int], now: float) -> None:
        """Ask the next worker once the last one has ended or its time is over."""
        while self.waiting and (self.asked not in alive or now >= self.until):
            self.asked, rank = self.waiting.pop(0)
            self.until = now + WRITE_SECONDS
            if self.asked in alive:
                text = f"Stacks of local rank {rank} (pid {self.asked}):"
                console.say_if_ready(2, text)  # the supervisor waits for no reader
                processes.send_to_main_thread(self.asked, self.number)
                if self.ends_workers:
                    processes.send(self.asked, signal.SIGCONT)


def of_ending(alive: Mapping[int, int]) -> Dump:
    """Have every worker write its stacks and end.

    Args:
        alive: local rank by pid.
    """
    for pid in alive:
        processes.send(pid, signal.SIGSTOP)
        processes.without_core(pid)
    return Dump(signal.SIGABRT, _by_rank(alive))


def of_living(alive: Mapping[int, int]) -> Dump:
    """Have every worker with a handler write its stacks and live on."""
    return Dump(DUMP_SIGNAL, [one for one in _by_rank(alive) if processes.catches(one[0], DUMP_SIGNAL)])


def _by_rank(alive: Mapping[int, int]) -> list[tuple[int, int]]:
    return sorted(alive.items(), key=lambda item: item[1])
