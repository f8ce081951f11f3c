"""Draws an answer as SVG: for each arm a bar of what its time was spent on, in the look of the timeline. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from elastic_infra.simulate import formatting
from elastic_infra.simulate.arms import SAID
from elastic_infra.simulate.report import Answer, cost
from elastic_infra.simulate.run import ACTIVITIES, Activity
from elastic_infra.simulate.study import Result
from elastic_infra.timeline import svg, theme

WIDTH: Final = 1000.0
MARGIN: Final = 16.0
LEFT: Final = 190.0
ROW: Final = 64.0
BAR: Final = 30.0
SURFACES: Final[Mapping[Activity, str]] = {
    "training": "train",
    "saving": "stop",
    "repeated": "repeated",
    "restarting": "start",
    "waiting": "rendezvous",
}
"""The timeline's surface for each activity."""


def draw(said: Answer) -> str:
    """The picture as an SVG document."""
    results = said.results
    longest = max((hours for each in results if math.isfinite(hours := each.hours.p95)), default=1.0)
    markup = [*_head(said)]
    top = 66.0
    for result in results:
        markup += _row(said, result, longest, top)
        top += ROW
    markup += _legend(results, top)
    return theme.document("simulation", _title(said), summary(said), (WIDTH, top + 34), markup)


def summary(said: Answer) -> str:
    """The picture in one sentence, for screen readers."""
    parts = (
        f"{SAID[result.arm.name]}: goodput {formatting.percent(result.goodput.mean)}, "
        f"{formatting.hours(result.hours.mean)}"
        for result in said.results
    )
    return f"{'; '.join(parts)}."


def _title(said: Answer) -> str:
    return f"Simulation of {said.question.job}"


def _head(said: Answer) -> Iterator[str]:
    scenario = said.question.scenario
    yield svg.words((MARGIN, 30), "head", _title(said))
    yield svg.words(
        (MARGIN, 50),
        "soft",
        f"Time to finish {scenario.hours:g} h of training on up to {scenario.nodes[1]} nodes, and what it was spent "
        f"on; means of {said.question.runs} runs. The line spans 9 of 10 runs.",
    )


def _row(said: Answer, result: Result, longest: float, top: float) -> Iterator[str]:
    price = said.question.price
    yield svg.words((MARGIN, top + 20), "", SAID[result.arm.name])
    yield svg.words((MARGIN, top + 36), "soft small", f"goodput {formatting.percent(result.goodput.mean)}")
    hours = result.hours
    if math.isinf(hours.mean):
        yield svg.words((LEFT, top + 20), "", f"{result.unfinished} of {len(result.runs)} runs never end")
        return
    scale = (WIDTH - LEFT - MARGIN) / longest
    left = LEFT
    for activity, share in result.shares().items():
        width = share * hours.mean * scale
        hover = f"{ACTIVITIES[activity]}: {formatting.percent(share)}"
        look = {**theme.fill(SURFACES[activity]), "class": "grid"}
        yield svg.box((left, top + 4), (width, BAR), look, hover)
        left += width
    ends = (LEFT + hours.p5 * scale, LEFT + hours.p95 * scale)
    middle = top + BAR + 8
    yield svg.line((ends[0], middle), (ends[1], middle), "edge")
    for end in ends:
        yield svg.line((end, middle - 4), (end, middle + 4), "edge")
    costs = "" if price is None else f"; cost {formatting.money(cost(result.node_hours, price).mean)}"
    yield svg.words((LEFT, top + BAR + 27), "soft small", f"{formatting.estimated(hours, formatting.hours)}{costs}")


def _legend(results: Sequence[Result], top: float) -> Iterator[str]:
    left = MARGIN
    for activity, meaning in ACTIVITIES.items():
        if any(result.share(activity) for result in results):
            yield svg.box((left, top + 6), (22, 12), {**theme.fill(SURFACES[activity]), "class": "grid"})
            yield svg.words((left + 28, top + 16), "small", meaning)
            left += 52 + len(meaning) * 5.8
