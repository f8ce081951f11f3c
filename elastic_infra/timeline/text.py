"""A history for a terminal: a row of signs for each node, the figures and the outages below.

Strings from events become ``Text``, since rich reads a plain string as markup, and an error message may hold
``[/path]``.

Each phase has a different sign, so that the lanes can be read without colours and on a braille display.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elastic_infra.timeline import formatting, scale
from elastic_infra.timeline.figures import Figures
from elastic_infra.timeline.history import History, Interval, Mark
from elastic_infra.timeline.summary import lines

SIGNS: Final = {
    "rendezvous": (".", "dim"),
    "start": ("/", "blue"),
    "run": ("=", "green"),
    "train": ("#", "green"),
    "hang": ("!", "bold red"),
    "stop": ("|", "yellow"),
}
MARK_SIGNS: Final = {"fault": "v", "worker": "x", "hang": "!", "lost": "?", "exit": "e"}
NARROWEST: Final = 20
"""Columns of a lane on the narrowest terminal; longer lines then wrap."""


def print_text(history: History, figures: Figures, console: Console) -> None:
    """Print the picture and the figures."""
    console.print(_head(history))
    console.print(_lanes(history, console.width))
    console.print(_legend())
    console.print(_figures(figures))
    if figures.outages:
        console.print(_outages(history, figures))


def _head(history: History) -> Text:
    name = history.run_id or history.script or "a job"
    return Text(
        f"{name}: {formatting.moment(history.begin)}, {formatting.seconds(history.seconds)}, {history.outcome}", "bold"
    )


def _lanes(history: History, width: int) -> Table:
    names = [formatting.short(lane.node) for lane in history.lanes]
    room = max(NARROWEST, width - max(map(len, names), default=0) - 3)
    places = scale.Scale(history.begin, history.end, 0, room)
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for name, lane in zip(names, history.lanes, strict=True):
        if lane.marks:
            table.add_row("", _marks(lane.marks, places, room))
        table.add_row(Text(name), _lane(lane.intervals, places, room))
    if history.marks:
        table.add_row("the job", _marks(history.marks, places, room))
    table.add_row("", _axis(places, room))
    return table


def _legend() -> Text:
    phases = "  ".join(f"{sign} {phase}" for phase, (sign, _) in SIGNS.items())
    marks = "  ".join(f"{sign} {kind}" for kind, sign in MARK_SIGNS.items())
    return Text(f"{phases}; above a lane: {marks}, a number for several", "dim")


def _lane(intervals: Sequence[Interval], places: scale.Scale, room: int) -> Text:
    signs = [(" ", "")] * room
    for interval in scale.columns(intervals, places):
        first, last = int(places.at(interval.begin)), int(places.at(interval.end))
        for column in range(min(first, room - 1), min(max(last, first + 1), room)):
            signs[column] = SIGNS[interval.phase]
    return Text.assemble(*signs)


def _marks(marks: Sequence[Mark], places: scale.Scale, room: int) -> Text:
    signs = [" "] * room
    for at, group in scale.together(marks, places, 1.0):
        column = min(int(at), room - 1)
        signs[column] = MARK_SIGNS[group[0].kind] if len(group) == 1 else str(min(9, len(group)))
    return Text("".join(signs), "bold")


def _axis(places: scale.Scale, room: int) -> Text:
    line = [" "] * room
    for moment, label in places.ticks(max(2, room // 10)):
        column = int(places.at(moment))
        if column + len(label) < room:
            line[column : column + len(label) + 1] = ["'", *label]
    return Text("".join(line[:room]), "dim")


def _figures(known: Figures) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in lines(known):
        table.add_row(name, Text(value))
    return table


def _outages(history: History, known: Figures) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("outage", "at", "for"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("cause", overflow="fold")
    for number, outage in enumerate(known.outages, 1):
        made = formatting.resumed(outage.source, outage.steps_lost)
        at, length = scale.clock(outage.begin - history.begin), formatting.seconds(outage.seconds)
        table.add_row(str(number), at, length, Text(f"{outage.kind}: {formatting.cause(outage.cause)}{made}"))
    return table
