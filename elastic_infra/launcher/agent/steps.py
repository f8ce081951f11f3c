"""From the workers' reports to the protocol's facts: lowest and highest step, speed, newest checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..protocol.events import StepsSeen
from ..workers.progress import Slot

SPAN_SECONDS: Final = 0.5
"""The shortest time over which the speed is measured."""


class Watch:
    """The progress of one generation, from repeated looks at its slots."""

    def __init__(self) -> None:
        self._last: StepsSeen | None = None
        self._since = 0.0
        self._from: int | None = None
        self._per_second = 0.0
        self._first: int | None = None
        self._stepped_at: float | None = None

    def look(self, generation: int, slots: Sequence[Slot], now: float) -> StepsSeen | None:
        """The facts in the slots; None where they are the same as at the last look."""
        reported = [slot.step for slot in slots if slot.step is not None]
        highest = max(reported, default=None)
        self._measure(highest, now)
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

    def _measure(self, highest: int | None, now: float) -> None:
        if highest is None:
            return
        if self._from is None or highest < self._from:
            self._from, self._since = highest, now
        elif now - self._since >= SPAN_SECONDS:
            self._per_second = round((highest - self._from) / (now - self._since), 3)
            self._from, self._since = highest, now


def _slowest(slots: Sequence[Slot]) -> int | None:
    steps = [slot.step for slot in slots if slot.step is not None]
    return steps.index(min(steps)) if steps and len(steps) == len(slots) else None


def first_step(step: int, reports: int) -> int:
    """The first step a worker reported, from its current step and the number of its reports, one report a step."""
    return max(0, step - reports + 1)
