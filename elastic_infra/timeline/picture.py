"""Draws a history as SVG: key figures, the job's own row, a lane a node, the axis, a legend, the outages. Pure.

Each part is a function from the place where it begins (``top``) to its markup and the place where it ends. What each
part says in colours it also says in hatches, shapes or words; hover titles tell the details.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elastic_infra.timeline import looks, scale, svg, words
from elastic_infra.timeline.figures import Figures, Outage
from elastic_infra.timeline.history import History, Lane, Mark

WIDTH: Final = 1000.0
LEFT: Final = 118.0
RIGHT: Final = 16.0
MARK_WIDTH: Final = 11.0
LETTER: Final = 6.3
"""Width of a letter of 12 px, on average: what decides whether a word fits."""
HIGH: Final = 12.0
"""A row of at least this height has room for a word."""
MOST_HOVER: Final = 8
"""Marks that one title tells."""
MOST_OUTAGES: Final = 10
"""Listed in the picture; the longest, where there are more. The tables and JSON have all."""

Part = tuple[tuple[str, ...], float]
"""Markup, and where it ends."""


@dataclass(frozen=True)
class Scene:
    """What every part needs."""

    history: History
    figures: Figures
    scale: scale.Scale

    def since(self, moment: float) -> str:
        """A moment as its distance from the begin."""
        return scale.clock(moment - self.history.begin)


def draw(history: History, figures: Figures) -> str:
    """The picture, as a document of its own."""
    scene = Scene(history, figures, scale.Scale(history.begin, history.end, LEFT, WIDTH - LEFT - RIGHT))
    parts: tuple[Callable[[Scene, float], Part], ...] = (_head, _numbers, _groups, _job, _lanes, _axis, _legend, _table)
    top, markup = 12.0, list[str]()
    for part in parts:
        drawn, top = part(scene, top)
        markup += drawn
    return _document(scene, top + 10, markup)


def summary(history: History, figures: Figures) -> str:
    """The picture in one sentence, for those who do not see it."""
    return (
        f"{words.count(len(history.lanes), 'node')}, {words.count(figures.generations, 'generation')} in "
        f"{words.seconds(figures.wall_seconds)}; goodput {words.percent(figures.goodput)}; "
        f"{words.count(len(figures.outages), 'outage')}, {words.seconds(figures.outage_seconds)} in all; "
        f"{OUTCOMES[history.outcome]}."
    )


OUTCOMES: Final = {
    "succeeded": "the job succeeded",
    "failed": "the job failed",
    "running": "not over at the last event",
}


def _document(scene: Scene, height: float, markup: Sequence[str]) -> str:
    attributes: dict[str, svg.Value] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {WIDTH:g} {height:g}",
        "width": WIDTH,
        "height": height,
        "role": "img",
        "aria-labelledby": "timeline-title timeline-desc",
    }
    said = svg.escaped(summary(scene.history, scene.figures))
    names = (
        svg.element("title", {"id": "timeline-title"}, f"Timeline of {svg.escaped(_name(scene.history))}"),
        svg.element("desc", {"id": "timeline-desc"}, said),
    )
    ground = svg.box((0, 0), (WIDTH, height), {"class": "bg", "rx": 6})
    return svg.element("svg", attributes, *names, looks.style(), looks.patterns(), ground, *markup) + "\n"


def _name(history: History) -> str:
    return history.run_id or history.script or "a job"


def _head(scene: Scene, top: float) -> Part:
    when = f"{words.moment(scene.history.begin)}, {words.seconds(scene.history.seconds)}"
    return (
        svg.words((RIGHT, top + 14), "head", fit(f"Timeline of {_name(scene.history)}", 560)),
        svg.words((WIDTH - RIGHT, top + 14), "soft right", f"{when}; {OUTCOMES[scene.history.outcome]}"),
    ), top + 26


def _numbers(scene: Scene, top: float) -> Part:
    known = scene.figures
    lost = f"; {words.count(known.steps_lost, 'step')} made again" if known.steps_lost else ""
    training = "no steps were reported"
    if known.training_seconds is not None:
        training = f"training {words.seconds(known.training_seconds)} of {words.seconds(known.wall_seconds)}"
    outages = f"{'outage' if len(known.outages) == 1 else 'outages'}, {words.seconds(known.outage_seconds)} in all"
    longest = f"longest {words.seconds(known.longest_outage_seconds)}{lost}" if known.outages else "no step made again"
    kinds = ", ".join(f"{kind} {number}" for kind, number in known.restarts.items())
    workers = sorted({known.smallest_world, known.largest_world})
    tiles = (
        (RIGHT, f"{words.percent(known.goodput)}", "goodput", training),
        (250.0, str(len(known.outages)), outages, longest),
        (520.0, str(known.generations), "generations, each change by kind", kinds),
        (820.0, " to ".join(map(str, workers)), "workers", f"on {words.count(len(scene.history.lanes), 'node')}"),
    )
    markup = []
    for left, number, first, second in tiles:
        markup += [svg.words((left, top + 26), "big", number), svg.words((left, top + 44), "", first)]
        markup.append(svg.words((left, top + 59), "soft small", second))
    return tuple(markup), top + 74


def _groups(scene: Scene, top: float) -> Part:
    """The generations: where each begins, and how many workers it has."""
    bottom = top + 16
    markup = [svg.words((LEFT - 8, top + 12), "soft right small", "workers")]
    entries = scene.history.generations
    ends = [*(entry.begin for entry in entries), scene.history.end][1:]
    for entry, end in zip(entries, ends, strict=True):
        left, right = scene.scale.at(entry.begin), scene.scale.at(end)
        text = next((text for text in _sizes(entry.number, entry.world_size) if fits(text, right - left)), "")
        hover = f"generation {entry.number}: {entry.world_size} workers on {words.count(entry.size, 'node')}; "
        hover += f"from {scene.since(entry.begin)}: {words.cause(entry.cause) if entry.kind else 'the first'}"
        edge = svg.line((left, top + 2), (left, bottom), "edge")
        label = (svg.words((left + 4, top + 12), "small", text),) if text else ()
        hit = svg.box((left, top), (max(1.0, right - left), 16), {"fill": "transparent"})
        markup.append(svg.element("g", {}, svg.title(hover), hit, edge, *label))
    return tuple(markup), bottom + 2


def _sizes(number: int, world: int) -> tuple[str, ...]:
    return f"generation {number}: {world}", f"{number}: {world}", str(world)


def _job(scene: Scene, top: float) -> Part:
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
    return (*markup, *_marks(scene, marks, top + height / 2)), top + height + 8


def _span(scene: Scene, name: str, between: tuple[float, float], rows: tuple[float, float], hover: str) -> list[str]:
    left, right = scene.scale.at(between[0]), scene.scale.at(between[1])
    if right <= left:
        return []
    hover = f"{hover}; {scene.since(between[0])} to {scene.since(between[1])}, {words.seconds(between[1] - between[0])}"
    surface = svg.box((left, rows[0]), (max(right - left, 0.6), rows[1]), looks.fill(name), hover)
    if rows[1] < HIGH or not fits(name, right - left):
        return [surface]
    return [surface, svg.words((left + 5, rows[0] + rows[1] / 2 + 4), f"in t-{name}", name)]


def _gap(scene: Scene, outage: Outage, number: int, middle: float) -> list[str]:
    left, right = scene.scale.at(outage.begin), scene.scale.at(outage.begin + outage.seconds)
    hover = f"outage {number}: {words.seconds(outage.seconds)}; {words.cause(outage.cause)}"
    texts = (f"{number}: {words.seconds(outage.seconds)}", str(number))
    text = next((text for text in texts if fits(text, right - left - 6)), "")
    ends = [svg.line((place, middle - 5), (place, middle + 5), "edge") for place in (left, right)]
    half = len(text) * LETTER / 2 + 4 if text else 0
    centre = (left + right) / 2
    lines = [svg.line((left, middle), (centre - half, middle), "edge")]
    lines.append(svg.line((centre + half, middle), (right, middle), "edge"))
    label = [svg.words((centre, middle + 4), "small middle", text)] if text else []
    hit = svg.box((left, middle - 8), (max(1.0, right - left), 16), {"fill": "transparent"})
    return [svg.element("g", {}, svg.title(hover), hit, *ends, *lines, *label)]


def _lanes(scene: Scene, top: float) -> Part:
    """One lane a node; many nodes get lower ones."""
    lanes = scene.history.lanes
    height, gap = next(
        size for most, *size in ((16, 22.0, 8.0), (40, 16.0, 6.0), (10**9, 9.0, 5.0)) if len(lanes) <= most
    )
    markup: list[str] = []
    for index, lane in enumerate(lanes):
        markup.append(_lane(scene, lane, top + index * (height + gap), height))
    bottom = top + len(lanes) * (height + gap)
    begins = (scene.scale.at(entry.begin) for entry in scene.history.generations)
    lines = [svg.line((begin, top - 2), (begin, bottom), "away") for begin in begins]
    return (*lines, *markup), bottom


def _lane(scene: Scene, lane: Lane, top: float, height: float) -> str:
    middle = top + height / 2
    name = fit(words.short(lane.node), LEFT - 20)
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
    return ", ".join(f"{phase} {words.seconds(total)}" for phase, total in totals.items()) or "nothing"


def _marks(scene: Scene, marks: Sequence[Mark], height: float) -> list[str]:
    drawn = []
    for at, group in scale.together(marks, scene.scale, MARK_WIDTH):
        shown = [f"{scene.since(mark.at)} {mark.text}" for mark in group[:MOST_HOVER]]
        more = [f"and {len(group) - MOST_HOVER} more"] if len(group) > MOST_HOVER else []
        drawn.append(looks.mark(group[0].kind, (at, height), "; ".join((*shown, *more))))
        if len(group) > 1:
            drawn.append(svg.words((at + 6, height + 2), "in t-rendezvous", str(len(group))))
    return drawn


def _axis(scene: Scene, top: float) -> Part:
    markup = [svg.line((LEFT, top + 2), (LEFT + scene.scale.width, top + 2), "grid")]
    markup.append(svg.words((LEFT - 24, top + 18), "soft right small", "time"))
    for moment, text in scene.scale.ticks(12):
        place = scene.scale.at(moment)
        markup.append(svg.line((place, top + 2), (place, top + 7), "edge"))
        look = "soft small middle" if place < WIDTH - RIGHT - 12 else "soft small right"
        markup.append(svg.words((place, top + 18), look, text))
    return tuple(markup), top + 32


def _legend(scene: Scene, top: float) -> Part:
    names = [name for name in looks.SURFACES if name in _used(scene)]
    kinds = [kind for kind in looks.MARKS if kind in {mark.kind for mark in _all_marks(scene.history)}]
    left, markup = RIGHT, list[str]()
    for name in names:
        markup.append(svg.box((left, top + 2), (22, 12), {**looks.fill(name), "class": "grid"}))
        text = {"again": "train again", "rendezvous": "rendezvous, wait"}.get(name, name)
        markup.append(svg.words((left + 28, top + 12), "small", text))
        left += 46 + len(text) * LETTER * 0.92
    bottom = top + 22
    left = RIGHT
    for kind in kinds:
        markup.append(looks.mark(kind, (left + 8, bottom + 9)))
        markup.append(svg.words((left + 20, bottom + 13), "small", looks.MARK_WORDS[kind]))
        left += 38 + len(looks.MARK_WORDS[kind]) * LETTER * 0.92
    return tuple(markup), bottom + (24 if kinds else 2)


def _used(scene: Scene) -> set[str]:
    phases: set[str] = {interval.phase for lane in scene.history.lanes for interval in lane.intervals}
    return phases | ({"again"} if scene.figures.repeated_seconds else set())


def _all_marks(history: History) -> tuple[Mark, ...]:
    return (*history.marks, *(mark for lane in history.lanes for mark in lane.marks))


def _table(scene: Scene, top: float) -> Part:
    known = scene.figures.outages
    if not known:
        return (), top
    longest = sorted(range(len(known)), key=lambda index: -known[index].seconds)[:MOST_OUTAGES]
    head = "Outages" if len(known) <= MOST_OUTAGES else f"The {MOST_OUTAGES} longest of {len(known)} outages"
    markup = [svg.words((RIGHT, top + 18), "head", head)]
    for row, index in enumerate(sorted(longest), 1):
        outage, base = known[index], top + 20 + row * 17
        made = f"; {words.count(outage.steps_lost, 'step')} made again" if outage.steps_lost else ""
        texts = (
            (RIGHT + 22, "right", str(index + 1)),
            (RIGHT + 84, "right", scene.since(outage.begin)),
            (RIGHT + 160, "right", words.seconds(outage.seconds)),
            (RIGHT + 176, "", fit(f"{outage.kind}: {words.cause(outage.cause)}", 640 if made else 800) + made),
        )
        markup += [svg.words((left, base), look, text) for left, look, text in texts]
    return tuple(markup), top + 26 + len(longest) * 17


def fits(text: str, width: float) -> bool:
    """Whether a text of 12 px has room in a width."""
    return len(text) * LETTER + 10 <= width


def fit(text: str, width: float) -> str:
    """The text, cut where it has no room."""
    most = max(1, int(width / LETTER))
    return text if len(text) <= most else text[: most - 1] + "…"
