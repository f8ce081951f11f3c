"""The requests sent to the fork server, and what each answer means.

Pure. Answers come in the order of the requests, but may come after the spawn that asked is over. Every request
therefore has a unique number, which its answer repeats: by a local rank alone the answer to a request of the last
spawn would be taken for the worker of the next one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from .. import ipc

ANSWER_SECONDS: Final = 5.0
"""A fork takes milliseconds; a fork server that does not answer for this long is given up."""


@dataclasses.dataclass(frozen=True)
class Held:
    """A worker that waits until the fork server is ready."""

    spawn: int
    spec: ipc.WorkerSpec


@dataclasses.dataclass(frozen=True)
class Pending(Held):
    """A worker that was asked for and has no pid yet."""

    go: int
    """Pipe on which the worker waits for the order to run; closing the pipe ends the worker."""


@dataclasses.dataclass
class ForkRequests:
    """The requests to the fork server that have no answer yet."""

    wanted: dict[int, Pending] = dataclasses.field(default_factory=dict)
    """By request number: the worker in the answer is to run."""
    forgotten: dict[int, int] = dataclasses.field(default_factory=dict)
    """Spawn by request number: the worker in the answer is to be killed."""
    late_at: float | None = None
    """CLOCK_MONOTONIC at which the fork server is given up; None while no request is open."""
    _numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def next_number(self) -> int:
        """A number that no earlier request has had."""
        return next(self._numbers)

    def add(self, number: int, pending: Pending, now: float) -> None:
        """Take down a request that was sent."""
        self.wanted[number] = pending
        self.late_at = now + ANSWER_SECONDS if self.late_at is None else self.late_at

    def answer(self, number: int, now: float) -> Pending | int:
        """The request behind an answer, or the spawn of one that was forgotten.

        Raises:
            KeyError: no request without an answer has this number.
        """
        found = self.wanted.pop(number) if number in self.wanted else self.forgotten.pop(number)
        self.late_at = now + ANSWER_SECONDS if self.outstanding else None
        return found

    def forget(self, is_meant: Callable[[Held], bool]) -> tuple[Pending, ...]:
        """These workers are to end before they ran; their answers are still to come."""
        numbers = {number: pending.spawn for number, pending in self.wanted.items() if is_meant(pending)}
        self.forgotten.update(numbers)
        return tuple(self.wanted.pop(number) for number in numbers)

    def clear(self) -> tuple[Pending, ...]:
        """Drop all requests, since no answer will come any more; returns the workers without an answer."""
        left = tuple(self.wanted.values())
        self.wanted.clear()
        self.forgotten.clear()
        self.late_at = None
        return left

    @property
    def outstanding(self) -> bool:
        """Whether any answer is to come."""
        return bool(self.wanted or self.forgotten)

    def concerns(self, spawn: int) -> bool:
        """Whether an answer for this spawn is to come, so that a process of it may yet appear."""
        spawns = (pending.spawn for pending in self.wanted.values())
        return spawn in (*spawns, *self.forgotten.values())
