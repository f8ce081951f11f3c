"""Draws what happened over time: the generations, the job's own row, a lane a node, marks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elastic_infra.timeline import formatting, scale, svg, theme
from elastic_infra.timeline.figures import Outage
from elastic_infra.timeline.history import Lane, Mark
from elastic_infra.timeline.layout import LEFT, LETTER, Part, Scene, fit, fits

MARK_WIDTH: Final = 11.0
HIGH: Final = 12.0
"""A row of at least this height has room for a word."""
NARROW: Final = 4.0
"""What is narrower is not framed: many frames would hide what they frame."""
MOST_LINES: Final = 60
"""Generations that are told from each other by lines across the lanes."""
MOST_HOVER: Final = 8
"""Marks that one title tells."""


def groups(scene: Scene, top: float) -> Part:
    """The generations: where each begins, and how many workers it has."""
    bottom = top + 16
    markup = [svg.words((LEFT - 8, top + 12), "soft right small", "workers")]
    entries = scene.history.generations
    ends = [*(entry.begin for entry in entries), scene.history.end][1:]
    for entry, end in zip(entries, ends, strict=True):
        left, right = scene.scale.at(entry.begin), scene.scale.at(end)
        text = next((text for text in _sizes(entry.number, entry.world_size) if fits(text, right - left)), "")
        hover = f"generation {entry.number}: {entry.world_size} workers on {formatting.count(entry.size, 'node')}; "
        hover += f"from {scene.since(entry.begin)}: {formatting.cause(entry.cause) if entry.kind else 'the first'}"
        edge = svg.line((left, top + 2), (left, bottom), "edge" if right - left >= NARROW else "grid")
        label = (svg.words((left + 4, top + 12), "small", text),) if text else ()
        hit = svg.box((left, top), (max(1.0, right - left), 16), {"fill": "transparent"})
        markup.append(svg.element("g", {}, svg.title(hover), hit, edge, *label))
    return tuple(markup), bottom + 2


def _sizes(number: int, world: int) -> tuple[str, ...]:
    return f"generation {number}: {world}", f"{number}: {world}", str(world)


def job(scene: Scene, top: float) -> Part:
    """The job's own row: where steps were made, made again, and where none were."""
    height = 20.0
    markup = [
        svg.box((LEFT, top), (scene.scale.width, height), {"class": "row"}),
        svg.words((LEFT - 8, top + 14), "right", "the job"),
    ]
    for entry in scene.history.generations:
        if entry.steps:
            again = min(entry.steps.ahead_at or entry.steps.last_at, entry.steps.last_at)
            said = f"generation {entry.number}, steps {entry.steps.first} to {entry.steps.last}"
            markup += _span(scene, "again", (entry.steps.first_at, again), (top, height), f"made again: {said}")
            markup += _span(scene, "train", (again, entry.steps.last_at), (top, height), f"training: {said}")
    for number, outage in enumerate(scene.figures.outages, 1):
        markup += _gap(scene, outage, number, top + height / 2)
    marks = scene.history.marks
    return (*markup, *_marks(scene, marks, top + 1)), top + height + 8


def _span(scene: Scene, name: str, between: tuple[float, float], rows: tuple[float, float], hover: str) -> list[str]:
    left, right = scene.scale.at(between[0]), scene.scale.at(between[1])
    if right <= left:
        return []
    length = formatting.seconds(between[1] - between[0])
    hover = f"{hover}; {scene.since(between[0])} to {scene.since(between[1])}, {length}"
    surface = svg.box((left, rows[0]), (max(right - left, 0.6), rows[1]), theme.fill(name), hover)
    if rows[1] < HIGH or not fits(name, right - left):
        return [surface]
    return [surface, svg.words((left + 5, rows[0] + rows[1] / 2 + 4), f"in t-{name}", name)]


def _gap(scene: Scene, outage: Outage, number: int, middle: float) -> list[str]:
    left, right = scene.scale.at(outage.begin), scene.scale.at(outage.begin + outage.seconds)
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


def lanes(scene: Scene, top: float) -> Part:
    """One lane a node; many nodes get lower ones."""
    lanes = scene.history.lanes
    height, gap = next(
        size for most, *size in ((16, 22.0, 8.0), (40, 16.0, 6.0), (10**9, 9.0, 5.0)) if len(lanes) <= most
    )
    markup: list[str] = []
    for index, lane in enumerate(lanes):
        markup.append(_lane(scene, lane, top + index * (height + gap), height))
    bottom = top + len(lanes) * (height + gap)
    entries = scene.history.generations if len(scene.history.generations) <= MOST_LINES else ()
    begins = (scene.scale.at(entry.begin) for entry in entries)
    lines = [svg.line((begin, top - 2), (begin, bottom), "away") for begin in begins]
    return (*lines, *markup), bottom


def _lane(scene: Scene, lane: Lane, top: float, height: float) -> str:
    middle = top + height / 2
    name = fit(formatting.short(lane.node), LEFT - 20)
    markup = [
        svg.element("desc", {}, f"{svg.escaped(lane.node)}: {_told(lane)}"),
        svg.words((LEFT - 8, middle + 4), "right" if height >= HIGH else "right small", name),
        svg.line((LEFT, middle), (LEFT + scene.scale.width, middle), "away"),
    ]
    for interval in scale.columns(lane.intervals, scene.scale):
        hover = f"{lane.node}, generation {interval.generation}: {interval.phase}"
        markup += _span(scene, interval.phase, (interval.begin, interval.end), (top, height), hover)
    return svg.element("g", {}, *markup, *_marks(scene, lane.marks, top + 1))


def _told(lane: Lane) -> str:
    totals: dict[str, float] = {}
    for interval in lane.intervals:
        totals[interval.phase] = totals.get(interval.phase, 0.0) + interval.seconds
    return ", ".join(f"{phase} {formatting.seconds(total)}" for phase, total in totals.items()) or "nothing"


def _marks(scene: Scene, marks: Sequence[Mark], height: float) -> list[str]:
    drawn = []
    for at, group in scale.together(marks, scene.scale, MARK_WIDTH):
        shown = [f"{scene.since(mark.at)} {mark.text}" for mark in group[:MOST_HOVER]]
        more = [f"and {len(group) - MOST_HOVER} more"] if len(group) > MOST_HOVER else []
        drawn.append(theme.mark(group[0].kind, (at, height), "; ".join((*shown, *more))))
        if len(group) > 1:
            drawn.append(svg.words((at + 6, height + 2), "in t-rendezvous", str(len(group))))
    return drawn
