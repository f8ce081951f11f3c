"""Shows a run while it goes on: in place on a terminal, as a log everywhere else.

The same pure functions read the event lines for this view and for the timeline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TextIO

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastic_infra.local.watch import SILENT_SECONDS
from elastic_infra.timeline import formatting, scale
from elastic_infra.timeline.figures import restarts
from elastic_infra.timeline.history import natural
from elastic_infra.timeline.job import Job, advance
from elastic_infra.timeline.log_lines import about, tell
from elastic_infra.timeline.nodes import Node
from elastic_infra.timeline.records import Record

REDRAW_SECONDS: Final = 0.25
"""Seconds between two drawings on a terminal: a reader follows no faster."""
STEP_SECONDS: Final = 10.0
"""Seconds between two log lines on the training's progress."""
KEPT: Final = 20
"""The most log lines that are kept; as many are shown as fit."""
NARROW: Final = 60
"""Columns below which a node's row is cut to the most important parts."""
UNREPORTED: Final = "running, steps not reported: elastic_infra.training.Progress reports them"
LOOKS: Final = {"train": "green", "run": "green", "start": "blue", "hang": "bold red", "stop": "yellow", "gone": "dim"}


class View(Protocol):
    """Shows a run while it happens: a live table on a terminal, lines elsewhere."""

    def update(self, records: Sequence[Record]) -> None:
        """Take new records; called without records too, so that times advance."""

    def close(self) -> None:
        """Show the last state and restore the stream."""


@dataclass(frozen=True)
class Notice:
    """One line about an event."""

    at: float
    node: str
    text: str


@dataclass(frozen=True)
class Shown:
    """The state of a view."""

    job: Job = field(default_factory=Job)
    begin: float | None = None
    notices: tuple[Notice, ...] = ()


def open_view(stream: TextIO, title: str, environ: Mapping[str, str] = os.environ) -> View:
    """The view that fits a stream.

    Args:
        stream: the output; a terminal is drawn in place, any other stream gets a line for each event.
        title: the run's title.
        environ: the environment; a terminal with ``TERM`` empty or ``dumb`` cannot be drawn in place.
    """
    if stream.isatty() and environ.get("TERM", "dumb") != "dumb":
        return LiveView(Console(file=stream, highlight=False, markup=False), title)
    return LogView(stream, title)


def apply_record(shown: Shown, record: Record) -> Shown:
    """The state after one more event."""
    job, _ = advance(shown.job, record)
    text = tell(shown.job, job, record)
    notices = (*shown.notices, Notice(record.at, about(record), text))[-KEPT:] if text else shown.notices
    return replace(shown, job=job, begin=record.at if shown.begin is None else shown.begin, notices=notices)


class LogView:
    """One flushed line for each event with a line, and regular lines on the training."""

    def __init__(self, stream: TextIO, title: str) -> None:
        self._stream = stream
        self._shown = Shown()
        self._steps_due = 0.0
        self._write(f"{title}\n")

    def update(self, records: Sequence[Record]) -> None:
        """Write the lines of new records."""
        for record in records:
            before, self._shown = self._shown, apply_record(self._shown, record)
            if self._shown.notices != before.notices:
                self._write(_line(self._shown, self._shown.notices[-1]) + "\n")
                self._steps_due = max(self._steps_due, record.at + STEP_SECONDS)
            elif record.event == "progress" and record.at >= self._steps_due:
                self._steps_due = record.at + STEP_SECONDS
                self._write(_line(self._shown, Notice(record.at, "", _speed(self._shown.job))) + "\n")

    def close(self) -> None:
        """Do nothing: all lines are written already."""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class LiveView:
    """Nodes, steps, restarts and the last lines, drawn in place.

    The cursor stays on the line below, where a user may be typing: a frame is drawn above it and the cursor put back,
    so that faults can be typed while the view goes on.
    """

    def __init__(self, console: Console, title: str, clock: Callable[[], float] = time.time) -> None:
        self._console = console
        self._title = title
        self._clock = clock
        self._shown = Shown()
        self._drawn_at = 0.0
        self._height = 0
        self._draw(clock())

    def update(self, records: Sequence[Record]) -> None:
        """Take new records, and draw if a drawing is due."""
        for record in records:
            self._shown = apply_record(self._shown, record)
        now = self._clock()
        if now - self._drawn_at >= REDRAW_SECONDS:
            self._draw(now)

    def close(self) -> None:
        """Draw the last state, which stays on the screen."""
        self._draw(self._clock())

    def _draw(self, now: float) -> None:
        self._drawn_at = now
        size = os.get_terminal_size(self._console.file.fileno())
        width, rows = size.columns or 80, size.lines or 24
        self._console.size = ConsoleDimensions(width, rows)
        with self._console.capture() as frame:
            self._console.print(draw(self._shown, self._title, now, (width, rows)))
        lines = frame.get().splitlines()[: rows - 1]
        height = max(len(lines), min(self._height, rows - 1))
        lines += [""] * (height - len(lines))
        self._console.file.write(_in_place(lines, self._height))
        self._console.file.flush()
        self._height = height


def _in_place(lines: Sequence[str], drawn: int) -> str:
    """The text that draws lines above the cursor's line, over the former ones (ECMA-48 CUU, EL, ED; DECSC, DECRC).

    A frame that grows is cleared first, so that only empty lines scroll out of the terminal.
    """
    room = ""
    if len(lines) > drawn:
        room = (f"\x1b[{drawn}A\r\x1b[J" if drawn else "\r") + "\n" * len(lines)
    drawing = "".join(f"{line}\x1b[K\r\n" for line in lines)
    return f"{room}\x1b7\x1b[{len(lines)}A\r{drawing}\x1b8"


def draw(shown: Shown, title: str, now: float, size: tuple[int, int]) -> RenderableType:
    """The whole view, in no more than ``size`` columns and rows; the cursor has another row below."""
    width, rows = size[0], size[1] - 1
    job, began = shown.job, shown.begin
    time_gone = scale.clock(max(0.0, now - began)) if began is not None else "0:00"
    speed = UNREPORTED if _is_unreported(job, now) else _speed(job)
    head = [f"{title}  {time_gone}  {job.outcome}", _world(job), speed, f"restarts: {_kinds(job, width)}"]
    lines: list[RenderableType] = [_row(text, width, "bold" if index == 0 else "") for index, text in enumerate(head)]
    nodes = sorted(job.nodes.values(), key=lambda node: natural(node.name))
    room = max(1, rows - len(head) - 2 - min(len(shown.notices), 3))
    lines.append(_nodes([_as_shown(node, job, now) for node in nodes[:room]], now, width))
    used = len(head) + 1 + min(room, len(nodes))
    if len(nodes) > room:
        lines.append(_row(f"and {formatting.count(len(nodes) - room, 'node')} more", width, "dim"))
        used += 1
    last = shown.notices[-max(0, rows - used) :] if rows > used else ()
    return Group(*lines, *(_row(_line(shown, notice), width, "") for notice in last))


def _nodes(nodes: Sequence[Node], now: float, width: int) -> Table:
    names = ("node", "state", "ranks", "step") if width < NARROW else ("node", "state", "for", "gen.", "ranks", "step")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=True, justify="right" if name in {"for", "gen.", "step"} else "left")
    for node in nodes:
        gone = node.phase in {"gone", "rendezvous"}
        cells: dict[str, str | Text] = {
            "node": Text(formatting.short(node.name)),
            "state": Text(node.phase, LOOKS.get(node.phase, "")),
            "for": scale.clock(max(0.0, now - node.since)),
            "gen.": str(node.generation or ""),
            "ranks": "" if gone else _ranks(node),
            "step": "" if gone or node.step is None else str(node.step),
        }
        table.add_row(*(cells[name] for name in names))
    return table


def _as_shown(node: Node, job: Job, now: float) -> Node:
    return replace(node, phase="run") if node.phase == "start" and _is_unreported(job, now) else node


def _is_unreported(job: Job, now: float) -> bool:
    """Whether workers run for so long that their script reports no steps, rather than has made none."""
    if not job.generations or any(entry.steps for entry in job.generations):
        return False
    return now - job.generations[0].begin >= SILENT_SECONDS


def _ranks(node: Node) -> str:
    if node.first_rank is None or not node.local_world_size:
        return ""
    last = node.first_rank + node.local_world_size - 1
    return str(last) if last == node.first_rank else f"{node.first_rank} to {last}"


def _world(job: Job) -> str:
    if not job.generations:
        return "no generation yet"
    entry = job.generations[-1]
    size = f"{formatting.count(entry.world_size, 'worker')} on {formatting.count(entry.size, 'node')}"
    return f"generation {entry.number}: {size}"


def _speed(job: Job) -> str:
    steps = job.generations[-1].steps if job.generations else None
    if steps is None:
        made = max((entry.steps.last for entry in job.generations if entry.steps), default=None)
        return "no step yet" if made is None else f"step {made}, none since"
    return f"step {steps.last}, {steps.per_second:.3g} a second"


def _kinds(job: Job, width: int) -> str:
    counts = restarts(job.generations)
    shown = {kind: number for kind, number in counts.items() if number or width >= NARROW}
    return formatting.changes(shown, sum(entry.moved for entry in job.generations)) or "none"


def _line(shown: Shown, notice: Notice) -> str:
    node = f"{formatting.short(notice.node)}: " if notice.node else ""
    return f"{scale.clock(notice.at - (notice.at if shown.begin is None else shown.begin)):>7}  {node}{notice.text}"


def _row(text: str, width: int, look: str) -> Text:
    line = Text(text, look, no_wrap=True, overflow="ellipsis", end="\n")
    line.truncate(width, overflow="ellipsis")
    return line
