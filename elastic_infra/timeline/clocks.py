"""One clock for records of many machines.

``monotonic`` never jumps but counts from a machine's own boot, ``time`` is the same everywhere but may be set. The
difference of the two names the machine: lines whose difference is nearly the same came from one, and are ordered by
its ``monotonic``; between machines only ``time`` can order, with the error their clocks have (NTP: milliseconds).
"""

from __future__ import annotations

from typing import Final

SAME_SECONDS: Final = 1.0
"""Differences closer than this are one machine's: a clock is corrected by less than that at a time, and two machines
that booted within a second of each other are misplaced by no more."""


class Clocks:
    """The machines seen so far, each by the first of its lines."""

    def __init__(self) -> None:
        self._offsets: list[float] = []

    def place(self, wall: float, monotonic: float | None) -> float:
        """The moment, as Unix seconds."""
        if monotonic is None:
            return wall
        offset = wall - monotonic
        known = next((known for known in self._offsets if abs(known - offset) <= SAME_SECONDS), None)
        if known is None:
            self._offsets.append(offset)
            return wall
        return known + monotonic
