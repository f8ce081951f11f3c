"""One clock for records of many machines.

``monotonic`` never jumps but counts from a machine's own boot, ``time`` is the same everywhere but may be set. The
difference of the two identifies the machine: lines with nearly the same difference came from one machine, and are
ordered by its ``monotonic``. Lines of different machines can only be ordered by ``time``, with the error of their
clocks (NTP: milliseconds).
"""

from __future__ import annotations

from typing import Final

SAME_SECONDS: Final = 1.0
"""Differences closer than this belong to one machine: clocks are corrected by smaller amounts at a time, and the
records of two machines that booted within a second of each other are misplaced by no more than a second."""


class Clocks:
    """The machines seen so far, each with its first line."""

    def __init__(self) -> None:
        self._offsets: list[float] = []

    def place(self, wall: float, monotonic: float | None) -> float:
        """The moment of a record on the common clock, in Unix seconds."""
        if monotonic is None:
            return wall
        offset = wall - monotonic
        known = next((known for known in self._offsets if abs(known - offset) <= SAME_SECONDS), None)
        if known is None:
            self._offsets.append(offset)
            return wall
        return known + monotonic
