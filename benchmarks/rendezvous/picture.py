"""Draws what was measured as SVG: seconds against nodes, both in logarithms, in the look of the timeline. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.common.results import Results
from benchmarks.rendezvous.report import C10D, FREE, OURS, POD, SILENT, Runs, summary
from elastic_infra.timeline import svg, theme
from elastic_infra.timeline.history import MarkKind

WIDTH, HEIGHT = 760.0, 470.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 740.0, 96.0, 420.0
SECONDS: Final = (-3, 2)
"""Powers of ten at the ends of the axis."""
SHAPES: Final[Mapping[str, MarkKind]] = {"form": "exit", "lost node": "lost", "newcomer": "fault", SILENT: "hang"}
LINES: Final = {OURS: "edge", POD: "h-start", C10D: "away"}
NAMES: Final = {OURS: "this launcher", POD: "the same, the store in its pod", C10D: "torch's c10d"}
TITLE: Final = "Seconds until all nodes have entered the next round"
Arms = dict[str, Runs]
"""The runs of one size."""
Point = tuple[int, float]
"""Number of nodes and median seconds."""


def document(results: Results, limited: Results) -> str:
    """The picture as an SVG document.

    Args:
        results: of both rendezvous.
        limited: of the store with and without the limits of its pod; the latter where the first have no such size.
    """
    runs = _together(results["runs"], limited["runs"])
    markup = [svg.words((16, 30), "head", TITLE), *_legend(), *_grid(list(runs), _x(runs))]
    for arm, name in itertools.product(LINES, SHAPES):
        markup += _curve(arm, name, points(runs, arm, name), _x(runs))
    return theme.document("scale", TITLE, described(runs), (WIDTH, HEIGHT), markup)


def _together(runs: Mapping[str, Mapping[str, Runs]], limited: Mapping[str, Mapping[str, Runs]]) -> dict[int, Arms]:
    found = {int(nodes): dict(by_arm) for nodes, by_arm in runs.items()}
    for nodes, by_arm in limited.items():
        arms = found.setdefault(int(nodes), {OURS: by_arm[FREE]})
        arms[POD] = by_arm[POD]
    return dict(sorted(found.items()))


def points(runs: Mapping[int, Mapping[str, Runs]], arm: str, name: str) -> list[Point]:
    """The median of each size that has one."""
    found = ((nodes, summary(by_arm.get(arm, ()), name).median) for nodes, by_arm in runs.items())
    return [(nodes, seconds) for nodes, seconds in found if seconds is not None]


def described(runs: Mapping[int, Mapping[str, Runs]]) -> str:
    """The picture in one sentence, for screen readers."""
    ends = []
    for arm, name in itertools.product(LINES, SHAPES):
        if found := points(runs, arm, name):
            nodes, seconds = found[-1]
            ends.append(f"{NAMES[arm]}, {name}: {seconds:.2g} s with {nodes} nodes")
    return f"{'; '.join(ends)}."


def _x(runs: Mapping[int, object]) -> tuple[float, float]:
    """Where the axis of the nodes begins, and its length of a power of ten."""
    first, last = math.log10(min(runs)), math.log10(max(runs))
    return first, (RIGHT - LEFT - 30) / max(last - first, 1e-9)


def _at(point: Point, axis: tuple[float, float]) -> tuple[float, float]:
    low, high = SECONDS
    height = (math.log10(max(point[1], 10**low)) - low) / (high - low)
    return LEFT + 14 + (math.log10(point[0]) - axis[0]) * axis[1], BOTTOM - height * (BOTTOM - TOP)


def _grid(sizes: list[int], axis: tuple[float, float]) -> Iterator[str]:
    for power in range(SECONDS[0], SECONDS[1] + 1):
        y = _at((sizes[0], 10.0**power), axis)[1]
        yield svg.line((LEFT, y), (RIGHT, y), "grid")
        yield svg.words((LEFT - 8, y + 4), "small soft right", f"{10.0**power:g} s")
    for nodes in sizes:
        x = _at((nodes, 1.0), axis)[0]
        yield svg.line((x, BOTTOM), (x, BOTTOM + 5), "edge")
        yield svg.words((x, BOTTOM + 20), "small soft middle", f"{nodes:,}")
    yield svg.words(((LEFT + RIGHT) / 2, BOTTOM + 40), "small soft middle", "nodes")


def _curve(arm: str, name: str, found: list[Point], axis: tuple[float, float]) -> Iterator[str]:
    places = [_at(point, axis) for point in found]
    for begin, end in itertools.pairwise(places):
        yield svg.line(begin, end, LINES[arm])
    for (nodes, seconds), place in zip(found, places, strict=True):
        yield theme.mark(SHAPES[name], place, f"{NAMES[arm]}, {name}, {nodes:,} nodes: {seconds:.3g} s")


def _legend() -> Iterator[str]:
    left = 16.0
    for arm, look in LINES.items():
        yield svg.line((left, 54), (left + 30, 54), look)
        yield svg.words((left + 38, 58), "small", NAMES[arm])
        left += 60 + 7 * len(NAMES[arm])
    left = 16.0
    for name, kind in SHAPES.items():
        yield theme.mark(kind, (left + 6, 74))
        yield svg.words((left + 18, 78), "small", name)
        left += 92
