"""From the workers' reports to the protocol's facts: lowest and highest step, speed, newest checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..protocol.events import StepsSeen
from ..workers.progress import Slot

SPAN_SECONDS: Final = 0.5
"""The shortest time over which the speed is measured."""
STALE_STEPS: Final = 3
"""Where no step has come for the time of so many, the speed is 0."""
KEPT_DURATIONS: Final = 200
"""So many that one step in a hundred, with an evaluation for example, does not count as usual."""


class Watch:
    """The progress of one generation, from repeated looks at its slots.

    Args:
        durations: those of the generation before, because a change of members changes no step's length by much.
    """

    def __init__(self, durations: Sequence[float] = ()) -> None:
        self.durations = tuple(durations)
        """Seconds of the last steps, the newest last."""
        self._last: StepsSeen | None = None
        self._newest: tuple[int, float] | None = None
        """The highest step so far, and when it was reported."""
        self._begin: tuple[int, float] | None = None
        """The same where the measurement of the speed began."""
        self._per_second = 0.0
        self._first: int | None = None
        self._stepped_at: float | None = None

    def look(self, generation: int, slots: Sequence[Slot], now: float) -> StepsSeen | None:
        """The facts in the slots; None where they are the same as at the last look."""
        reported = [slot.step for slot in slots if slot.step is not None]
        highest = max(reported, default=None)
        self._measure(slots, now)
        if self._first is None:
            self._first = min(
                (first_step(slot.step, slot.reports) for slot in slots if slot.step is not None), default=None
            )
        if self._stepped_at is None:
            self._stepped_at = min((slot.stepped_at for slot in slots if slot.stepped_at is not None), default=None)
        seen = StepsSeen(
            generation,
            lowest=min(reported) if reported and len(reported) == len(slots) else None,
            highest=highest,
            per_second=self._per_second,
            step_seconds=round(p99(self.durations), 3),
            checkpoint=max((slot.checkpoint for slot in slots if slot.checkpoint is not None), default=None),
            first=self._first,
            stepped_at=self._stepped_at,
            failing=any(slot.failed_at is not None for slot in slots),
            slowest=_slowest(slots),
        )
        if seen == self._last:
            return None
        self._last = seen
        return seen

    def forget(self) -> None:
        """Have the next look return its result even if it is unchanged."""
        self._last = None

    def _measure(self, slots: Sequence[Slot], now: float) -> None:
        """Measure from report to report: a look may come long after a step, and most looks see no new one."""
        newest = max(((slot.step, slot.at) for slot in slots if slot.step is not None), default=None)
        if newest is None:
            return
        if self._newest is None or self._begin is None or newest[0] < self._newest[0]:
            self._newest = self._begin = newest
        if newest[0] > self._newest[0]:
            duration = (newest[1] - self._newest[1]) / (newest[0] - self._newest[0])
            self.durations = (*self.durations, duration)[-KEPT_DURATIONS:]
            self._newest = newest
        steps, seconds = (end - begin for begin, end in zip(self._begin, self._newest, strict=True))
        if steps and seconds >= SPAN_SECONDS:
            self._per_second = round(steps / seconds, 6)
            self._begin = self._newest
        elif self._per_second and now - self._newest[1] >= max(SPAN_SECONDS, STALE_STEPS / self._per_second):
            self._per_second = 0.0
            self._begin = self._newest


def _slowest(slots: Sequence[Slot]) -> int | None:
    steps = [slot.step for slot in slots if slot.step is not None]
    return steps.index(min(steps)) if steps and len(steps) == len(slots) else None


def p99(durations: Sequence[float]) -> float:
    """The 99th percentile by nearest rank; 0 where none is known."""
    ordered = sorted(durations)
    return ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else 0.0


def first_step(step: int, reports: int) -> int:
    """The first step a worker reported, from its current step and the number of its reports, one report a step."""
    return max(0, step - reports + 1)
