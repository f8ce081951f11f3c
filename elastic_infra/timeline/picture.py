"""Draws a history as SVG: key figures, the job's own row, a lane a node, the axis, a legend, the outages. Pure.

Each part is a function from the height at which it begins (``top``) to its markup and the height at which it ends. All
information in colours is also in hatches, shapes or words; hover titles have the details.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from elastic_infra.timeline import formatting, lanes, scale, svg, theme
from elastic_infra.timeline.figures import Figures
from elastic_infra.timeline.history import History, Mark
from elastic_infra.timeline.layout import LEFT, LETTER, RIGHT, WIDTH, Layout, Part, fit

MOST_OUTAGES: Final = 10
"""The most outages that the picture lists: the longest, where there are more. The tables and JSON have all."""
OUTCOMES: Final = {
    "succeeded": "the job succeeded",
    "failed": "the job failed",
    "running": "not over at the last event",
}


def draw(history: History, figures: Figures) -> str:
    """The picture as an SVG document."""
    layout = Layout(history, figures, scale.Scale(history.begin, history.end, LEFT, WIDTH - LEFT - RIGHT))
    above: tuple[Callable[[Layout, float], Part], ...] = (_head, _numbers, _kept, lanes.groups, lanes.job, lanes.lanes)
    top, markup = 12.0, list[str]()
    for part in (*above, _axis, _legend, _table):
        drawn, top = part(layout, top)
        markup += drawn
    title = f"Timeline of {_name(history)}"
    return theme.document("timeline", title, summary(history, figures), (WIDTH, top + 10), markup)


def summary(history: History, figures: Figures) -> str:
    """The picture in one sentence, for screen readers."""
    return (
        f"{formatting.count(len(history.lanes), 'node')}, {formatting.count(figures.generations, 'generation')} in "
        f"{formatting.seconds(figures.wall_seconds)}; goodput {formatting.percent(figures.goodput)}; "
        f"{formatting.count(len(figures.outages), 'outage')}, {formatting.seconds(figures.outage_seconds)} in all; "
        f"{OUTCOMES[history.outcome]}."
    )


def _name(history: History) -> str:
    return history.run_id or history.script or "a job"


def _head(layout: Layout, top: float) -> Part:
    when = f"{formatting.moment(layout.history.begin)}, {formatting.seconds(layout.history.seconds)}"
    return (
        svg.words((RIGHT, top + 14), "head", fit(f"Timeline of {_name(layout.history)}", 560)),
        svg.words((WIDTH - RIGHT, top + 14), "soft right", f"{when}; {OUTCOMES[layout.history.outcome]}"),
    ), top + 26


def _numbers(layout: Layout, top: float) -> Part:
    known = layout.figures
    lost = f"; {formatting.count(known.steps_lost, 'step')} repeated" if known.steps_lost else ""
    training = "no steps were reported"
    if known.training_seconds is not None:
        training = f"training {formatting.seconds(known.training_seconds)} of {formatting.seconds(known.wall_seconds)}"
    outages = f"{'outage' if len(known.outages) == 1 else 'outages'}, {formatting.seconds(known.outage_seconds)} in all"
    longest = (
        f"longest {formatting.seconds(known.longest_outage_seconds)}{lost}" if known.outages else "no step repeated"
    )
    kinds = formatting.changes(known.restarts, known.moves)
    workers = sorted({known.smallest_world, known.largest_world})
    tiles = (
        (RIGHT, f"{formatting.percent(known.goodput)}", "goodput", training),
        (222.0, str(len(known.outages)), outages, longest),
        (490.0, str(known.generations), "generations, each change by kind", kinds),
        (830.0, " to ".join(map(str, workers)), "workers", f"on {formatting.count(len(layout.history.lanes), 'node')}"),
    )
    markup = []
    for left, number, first, second in tiles:
        markup += [svg.words((left, top + 26), "big", number), svg.words((left, top + 44), "", first)]
        markup.append(svg.words((left, top + 59), "soft small", second))
    return tuple(markup), top + 74


def _kept(layout: Layout, top: float) -> Part:
    """How far training came, and the newest snapshots; nothing where the script reported neither."""
    known = layout.figures
    told = formatting.snapshots(known.checkpoint, known.memory_step)
    parts = [f"{known.samples:,} samples"] if known.samples is not None else []
    parts += [f"newest snapshots: {told}"] if told else []
    if not parts:
        return (), top
    return (svg.words((RIGHT, top + 8), "soft small", "; ".join(parts)),), top + 18


def _axis(layout: Layout, top: float) -> Part:
    markup = [svg.line((LEFT, top + 2), (LEFT + layout.scale.width, top + 2), "grid")]
    markup.append(svg.words((LEFT - 24, top + 18), "soft right small", "time"))
    for moment, text in layout.scale.ticks(12):
        place = layout.scale.at(moment)
        markup.append(svg.line((place, top + 2), (place, top + 7), "edge"))
        look = "soft small middle" if place < WIDTH - RIGHT - 12 else "soft small right"
        markup.append(svg.words((place, top + 18), look, text))
    return tuple(markup), top + 32


def _legend(layout: Layout, top: float) -> Part:
    names = [name for name in theme.SURFACES if name in _used(layout)]
    kinds = [kind for kind in theme.MARKS if kind in {mark.kind for mark in _all_marks(layout.history)}]
    left, markup = RIGHT, list[str]()
    for name in names:
        markup.append(svg.box((left, top + 2), (22, 12), {**theme.fill(name), "class": "grid"}))
        text = {"repeated": "train, repeated", "rendezvous": "rendezvous, wait"}.get(name, name)
        markup.append(svg.words((left + 28, top + 12), "small", text))
        left += 46 + len(text) * LETTER * 0.92
    bottom = top + 22
    left = RIGHT
    for kind in kinds:
        markup.append(theme.mark(kind, (left + 8, bottom + 9)))
        markup.append(svg.words((left + 20, bottom + 13), "small", theme.MARK_WORDS[kind]))
        left += 38 + len(theme.MARK_WORDS[kind]) * LETTER * 0.92
    return tuple(markup), bottom + (24 if kinds else 2)


def _used(layout: Layout) -> set[str]:
    phases: set[str] = {interval.phase for lane in layout.history.lanes for interval in lane.intervals}
    return phases | ({"repeated"} if layout.figures.repeated_seconds else set())


def _all_marks(history: History) -> tuple[Mark, ...]:
    return (*history.marks, *(mark for lane in history.lanes for mark in lane.marks))


def _table(layout: Layout, top: float) -> Part:
    known = layout.figures.outages
    if not known:
        return (), top
    longest = sorted(range(len(known)), key=lambda index: -known[index].seconds)[:MOST_OUTAGES]
    head = "Outages" if len(known) <= MOST_OUTAGES else f"The {MOST_OUTAGES} longest of {len(known)} outages"
    markup = [svg.words((RIGHT, top + 18), "head", head)]
    for row, index in enumerate(sorted(longest), 1):
        outage, base = known[index], top + 20 + row * 17
        made = formatting.resumed(outage.source, outage.steps_lost)
        room = min(640 if made else 800, 800 - 8 * len(made))
        texts = (
            (RIGHT + 22, "right", str(index + 1)),
            (RIGHT + 84, "right", layout.since(outage.begin)),
            (RIGHT + 160, "right", formatting.seconds(outage.seconds)),
            (RIGHT + 176, "", fit(f"{outage.kind}: {formatting.cause(outage.cause)}", room) + made),
        )
        markup += [svg.words((left, base), look, text) for left, look, text in texts]
    return tuple(markup), top + 26 + len(longest) * 17
