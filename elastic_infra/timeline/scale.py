"""From time to the width of a picture: positions, ticks, and marks that overlap. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elastic_infra.timeline.formatting import HOUR, MINUTE
from elastic_infra.timeline.history import Interval, Mark

_STEPS: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(HOUR * number for number in (1, 2, 3, 6, 12, 24, 48, 168, 336, 672)),
)
"""Readable distances between ticks, in seconds."""


@dataclass(frozen=True)
class Scale:
    """From ``begin`` to ``end`` (Unix seconds) over ``width`` places from ``left``."""

    begin: float
    end: float
    left: float
    width: float

    def at(self, moment: float) -> float:
        """The position of a moment."""
        share = (moment - self.begin) / max(self.end - self.begin, 1e-9)
        return self.left + self.width * min(1.0, max(0.0, share))

    def ticks(self, most: int) -> tuple[tuple[float, str], ...]:
        """Moments for the axis, with their distance from the begin."""
        span = self.end - self.begin
        step = next((step for step in _STEPS if span / step <= most), _STEPS[-1] * (1 + span // _STEPS[-1] // most))
        return tuple((self.begin + index * step, clock(index * step, step)) for index in range(int(span / step) + 1))


def clock(seconds: float, step: float = 1.0) -> str:
    """A distance in time as on a stopwatch: ``0:05``, ``1:02:03``."""
    if step < 1:
        return f"{seconds:.1f}"
    whole = round(seconds)
    minutes, rest = divmod(whole, MINUTE)
    if whole < HOUR:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def columns(intervals: Sequence[Interval], scale: Scale) -> tuple[Interval, ...]:
    """The same lane with no more intervals than places: each place shows the phase that it holds most of.

    A lane whose intervals are all at least one place wide is returned as it is.
    """
    place = (scale.end - scale.begin) / max(scale.width, 1.0)
    if not any(interval.seconds < place for interval in intervals) or len(intervals) <= scale.width / 4:
        return tuple(intervals)
    shares: dict[int, dict[tuple[str, int], float]] = {}
    for interval in intervals:
        first, last = (int((moment - scale.begin) / place) for moment in (interval.begin, interval.end))
        for column in range(first, last + 1):
            begin, end = scale.begin + column * place, scale.begin + (column + 1) * place
            share = min(interval.end, end) - max(interval.begin, begin)
            if share > 0:
                key, held = (interval.phase, interval.generation), shares.setdefault(column, {})
                held[key] = held.get(key, 0.0) + share
    return _joined(shares, scale.begin, place)


def _joined(shares: dict[int, dict[tuple[str, int], float]], begin: float, place: float) -> tuple[Interval, ...]:
    found: list[Interval] = []
    for column in sorted(shares):
        held = shares[column]
        phase, generation = max(held, key=lambda key: held[key])
        start = begin + column * place
        last = found[-1] if found else None
        if last is not None and last.phase == phase and abs(last.end - start) < place / 2:
            found[-1] = Interval(last.phase, generation, last.begin, start + place)
        else:
            found.append(Interval(phase, generation, start, start + place))  # type: ignore[arg-type]  # a phase's name
    return tuple(found)


def together(marks: Sequence[Mark], scale: Scale, width: float) -> tuple[tuple[float, tuple[Mark, ...]], ...]:
    """Groups of marks that would overlap, each with its position."""
    groups: list[tuple[float, list[Mark]]] = []
    for mark in sorted(marks, key=lambda mark: mark.at):
        at = scale.at(mark.at)
        if groups and at - groups[-1][0] < width:
            groups[-1][1].append(mark)
        else:
            groups.append((at, [mark]))
    return tuple((at, tuple(group)) for at, group in groups)
