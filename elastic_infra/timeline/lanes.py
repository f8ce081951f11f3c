"""Draws the history over time: the generations, the job's row, a lane for each node, marks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elastic_infra.timeline import formatting, scale, svg, theme
from elastic_infra.timeline.figures import Outage
from elastic_infra.timeline.history import Lane, Mark
from elastic_infra.timeline.layout import LEFT, LETTER, Layout, Part, fit, fits

MARK_WIDTH: Final = 11.0
HIGH: Final = 12.0
"""A row of at least this height has room for a word."""
NARROW: Final = 4.0
"""Narrower intervals get no frame: many frames would hide the intervals."""
MOST_LINES: Final = 60
"""The most generations that are separated by lines across the lanes."""
MOST_HOVER: Final = 8
"""The most marks that one hover title lists."""


def groups(layout: Layout, top: float) -> Part:
    """The generations: the begin and the number of workers of each."""
    bottom = top + 16
    markup = [svg.words((LEFT - 8, top + 12), "soft right small", "workers")]
    entries = layout.history.generations
    ends = [*(entry.begin for entry in entries), layout.history.end][1:]
    for entry, end in zip(entries, ends, strict=True):
        left, right = layout.scale.at(entry.begin), layout.scale.at(end)
        text = next((text for text in _sizes(entry.number, entry.world_size) if fits(text, right - left)), "")
        hover = f"generation {entry.number}: {entry.world_size} workers on {formatting.count(entry.size, 'node')}; "
        hover += f"from {layout.since(entry.begin)}: {formatting.cause(entry.cause) if entry.kind else 'the first'}"
        edge = svg.line((left, top + 2), (left, bottom), "edge" if right - left >= NARROW else "grid")
        label = (svg.words((left + 4, top + 12), "small", text),) if text else ()
        hit = svg.box((left, top), (max(1.0, right - left), 16), {"fill": "transparent"})
        markup.append(svg.element("g", {}, svg.title(hover), hit, edge, *label))
    return tuple(markup), bottom + 2


def _sizes(number: int, world: int) -> tuple[str, ...]:
    return f"generation {number}: {world}", f"{number}: {world}", str(world)


def job(layout: Layout, top: float) -> Part:
    """The job's row: the times of new steps, of repeated steps, and without steps."""
    height = 20.0
    markup = [
        svg.box((LEFT, top), (layout.scale.width, height), {"class": "row"}),
        svg.words((LEFT - 8, top + 14), "right", "the job"),
    ]
    for entry in layout.history.generations:
        if entry.steps:
            repeated_until = min(entry.steps.ahead_at or entry.steps.last_at, entry.steps.last_at)
            said = f"generation {entry.number}, steps {entry.steps.first} to {entry.steps.last}"
            markup += _span(
                layout, "repeated", (entry.steps.first_at, repeated_until), (top, height), f"repeated: {said}"
            )
            markup += _span(layout, "train", (repeated_until, entry.steps.last_at), (top, height), f"training: {said}")
    for number, outage in enumerate(layout.figures.outages, 1):
        markup += _gap(layout, outage, number, top + height / 2)
    marks = layout.history.marks
    return (*markup, *_marks(layout, marks, top + 1)), top + height + 8


def _span(layout: Layout, name: str, between: tuple[float, float], rows: tuple[float, float], hover: str) -> list[str]:
    left, right = layout.scale.at(between[0]), layout.scale.at(between[1])
    if right <= left:
        return []
    length = formatting.seconds(between[1] - between[0])
    hover = f"{hover}; {layout.since(between[0])} to {layout.since(between[1])}, {length}"
    surface = svg.box((left, rows[0]), (max(right - left, 0.6), rows[1]), theme.fill(name), hover)
    if rows[1] < HIGH or not fits(name, right - left):
        return [surface]
    return [surface, svg.words((left + 5, rows[0] + rows[1] / 2 + 4), f"in t-{name}", name)]


def _gap(layout: Layout, outage: Outage, number: int, middle: float) -> list[str]:
    left, right = layout.scale.at(outage.begin), layout.scale.at(outage.begin + outage.seconds)
    hover = f"outage {number}: {formatting.seconds(outage.seconds)}; {formatting.cause(outage.cause)}"
    texts = (f"{number}: {formatting.seconds(outage.seconds)}", str(number))
    text = next((text for text in texts if fits(text, right - left - 6)), "")
    ends = [svg.line((place, middle - 5), (place, middle + 5), "edge") for place in (left, right)]
    half = len(text) * LETTER / 2 + 4 if text else 0
    centre = (left + right) / 2
    lines = [svg.line((left, middle), (centre - half, middle), "edge")]
    lines.append(svg.line((centre + half, middle), (right, middle), "edge"))
    label = [svg.words((centre, middle + 4), "small middle", text)] if text else []
    hit = svg.box((left, middle - 8), (max(1.0, right - left), 16), {"fill": "transparent"})
    if right - left < NARROW:
        return [svg.element("g", {}, svg.title(hover), hit)]
    return [svg.element("g", {}, svg.title(hover), hit, *ends, *lines, *label)]


def lanes(layout: Layout, top: float) -> Part:
    """One lane for each node; with many nodes the lanes are lower."""
    lanes = layout.history.lanes
    height, gap = next(
        size for most, *size in ((16, 22.0, 8.0), (40, 16.0, 6.0), (10**9, 9.0, 5.0)) if len(lanes) <= most
    )
    markup: list[str] = []
    for index, lane in enumerate(lanes):
        markup.append(_lane(layout, lane, top + index * (height + gap), height))
    bottom = top + len(lanes) * (height + gap)
    entries = layout.history.generations if len(layout.history.generations) <= MOST_LINES else ()
    begins = (layout.scale.at(entry.begin) for entry in entries)
    lines = [svg.line((begin, top - 2), (begin, bottom), "away") for begin in begins]
    return (*lines, *markup), bottom


def _lane(layout: Layout, lane: Lane, top: float, height: float) -> str:
    middle = top + height / 2
    name = fit(formatting.short(lane.node), LEFT - 20)
    markup = [
        svg.element("desc", {}, f"{svg.escaped(lane.node)}: {_told(lane)}"),
        svg.words((LEFT - 8, middle + 4), "right" if height >= HIGH else "right small", name),
        svg.line((LEFT, middle), (LEFT + layout.scale.width, middle), "away"),
    ]
    for interval in scale.columns(lane.intervals, layout.scale):
        hover = f"{lane.node}, generation {interval.generation}: {interval.phase}"
        markup += _span(layout, interval.phase, (interval.begin, interval.end), (top, height), hover)
    return svg.element("g", {}, *markup, *_marks(layout, lane.marks, top + 1))


def _told(lane: Lane) -> str:
    totals: dict[str, float] = {}
    for interval in lane.intervals:
        totals[interval.phase] = totals.get(interval.phase, 0.0) + interval.seconds
    return ", ".join(f"{phase} {formatting.seconds(total)}" for phase, total in totals.items()) or "nothing"


def _marks(layout: Layout, marks: Sequence[Mark], height: float) -> list[str]:
    drawn = []
    for at, group in scale.together(marks, layout.scale, MARK_WIDTH):
        shown = [f"{layout.since(mark.at)} {mark.text}" for mark in group[:MOST_HOVER]]
        more = [f"and {len(group) - MOST_HOVER} more"] if len(group) > MOST_HOVER else []
        drawn.append(theme.mark(group[0].kind, (at, height), "; ".join((*shown, *more))))
        if len(group) > 1:
            drawn.append(svg.words((at + 6, height + 2), "in t-rendezvous", str(len(group))))
    return drawn
