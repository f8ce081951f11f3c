"""The live view: in a pseudo-terminal of any size, and as a log without one."""

from __future__ import annotations

import fcntl
import io
import itertools
import os
import re
import struct
import termios
import tty
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from elastic_infra.local.view import REDRAW_SECONDS, LiveView, LogView, Shown, apply_record, draw, open_view
from elastic_infra.local.watch import SILENT_SECONDS
from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.history import history
from elastic_infra.timeline.records import Record
from tests.timeline.events import record, recording, start, steps

FAULTS = recording("faults")
ENVIRON = {"TERM": "xterm"}


class Terminal:
    """A pseudo-terminal and what its screen shows: text, line feeds, and the sequences that the view uses."""

    def __init__(self, columns: int, rows: int) -> None:
        self.master, slave = os.openpty()
        tty.setraw(self.master)
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.screen = [""] * rows
        self.scrolled: list[str] = []
        self.row = self.column = 0
        self.saved = (0, 0)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        """Set the size that programs are told."""
        self.columns, self.rows = columns, rows
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def show(self) -> list[str]:
        """The screen after all that was written; fails on a line that is too long."""
        os.set_blocking(self.master, False)
        data = b""
        while chunk := self._read():
            data += chunk
        for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[78]|\r|\n|[^\x1b\r\n]+", data.decode()):
            self._take(token)
        return [line.rstrip() for line in self.screen]

    def type(self, text: str) -> None:
        """What the terminal shows of typed text."""
        self.show()
        self._take(text)

    def close(self) -> None:
        """Close both ends of the terminal."""
        self.stream.close()
        os.close(self.master)

    def _read(self) -> bytes:
        try:
            return os.read(self.master, 65536)
        except BlockingIOError:
            return b""

    def _take(self, token: str) -> None:
        if token.startswith("\x1b"):
            self._control(token)
        elif token == "\r":
            self.column = 0
        elif token == "\n":
            self._feed()
        else:
            self._print(token)

    def _control(self, sequence: str) -> None:
        if sequence == "\x1b7":
            self.saved = (self.row, self.column)
        elif sequence == "\x1b8":
            self.row, self.column = self.saved
        elif sequence.endswith("A"):
            self.row = max(0, self.row - int(sequence[2:-1]))
        elif sequence == "\x1b[K":
            self.screen[self.row] = self.screen[self.row][: self.column]
        elif sequence == "\x1b[J":
            self.screen[self.row :] = [""] * (self.rows - self.row)

    def _feed(self) -> None:
        self.row += 1
        if self.row == self.rows:
            self.scrolled.append(self.screen.pop(0))
            self.screen.append("")
            self.row -= 1

    def _print(self, text: str) -> None:
        line = self.screen[self.row].ljust(self.column)
        self.screen[self.row] = line[: self.column] + text + line[self.column + len(text) :]
        self.column += len(text)
        assert self.column <= self.columns, f"wraps at {self.columns}: {text!r}"


@pytest.fixture(params=[(80, 24), (40, 24), (40, 10)], ids=["80x24", "40x24", "40x10"])
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """Terminals of usual and of small size."""
    end = Terminal(*request.param)
    yield end
    end.close()


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = FAULTS[0].at

    def __call__(self) -> float:
        return self.now


def play(view: LiveView, clock: Clock, records: tuple[Record, ...], terminal: Terminal) -> list[list[str]]:
    """Feed records at their times; every screen that was seen."""
    screens = []
    for each in records:
        clock.now = max(clock.now + REDRAW_SECONDS, each.at)
        view.update([each])
        screens.append(terminal.show())
    return screens


def test_it_is_drawn_in_place(terminal: Terminal) -> None:
    """A whole run leaves one frame on the screen: nothing scrolled away but the room it took, nothing wraps."""
    clock = Clock()
    view = LiveView(Console(file=terminal.stream, highlight=False, markup=False, color_system=None), "digits", clock)
    screens = play(view, clock, FAULTS, terminal)
    view.close()
    last = terminal.show()
    nodes = ["node-0", "node-1", "node-2"] if terminal.rows > 10 else ["node-0"]

    assert all(sum(line.startswith("digits ") for line in screen) == 1 for screen in screens)
    assert not any(line.strip() for line in terminal.scrolled)
    assert last[0].startswith("digits  ")
    assert "succeeded" in last[0]
    assert last[2].startswith("step 699")
    assert any(screen[3].startswith("restarts: failure 1") for screen in screens)
    assert [line.split()[0] for line in last if line.startswith("node-")] == nodes


def test_what_is_typed_stays(terminal: Terminal) -> None:
    """A user types a fault below the view; drawing does not touch it."""
    clock = Clock()
    view = LiveView(Console(file=terminal.stream, color_system=None), "digits", clock)
    play(view, clock, FAULTS[:200], terminal)
    terminal.type("scale 3")
    row = terminal.row
    play(view, clock, FAULTS[200:210], terminal)

    assert terminal.screen[row] == "scale 3"
    assert (terminal.row, terminal.column) == (row, 7)


def test_a_terminal_that_changes_its_size() -> None:
    """The next frame has the new size."""
    terminal, clock = Terminal(80, 24), Clock()
    view = LiveView(Console(file=terminal.stream, color_system=None), "digits", clock)
    play(view, clock, FAULTS[:150], terminal)
    terminal.resize(40, 24)
    screens = play(view, clock, FAULTS[150:], terminal)
    terminal.close()

    assert all(len(line) <= 40 for line in screens[-1])


SEEN = tuple(itertools.accumulate(FAULTS, apply_record, initial=Shown()))


@settings(max_examples=40, deadline=None)
@given(st.integers(10, 200), st.integers(9, 60), st.integers(0, 40), st.sampled_from(SEEN))
def test_it_fits_any_terminal(columns: int, rows: int, nodes: int, shown: Shown) -> None:
    """However many nodes and however little room: never wider or higher than the terminal, the state always on top."""
    for each in (each for index in range(nodes) for each in start(FAULTS[0].at, f"n-{index}", 1, nodes)):
        shown = apply_record(shown, each)
    console = Console(file=io.StringIO(), width=columns, height=rows, color_system=None)
    with console.capture() as captured:
        console.print(draw(shown, "digits", FAULTS[-1].at, (columns, rows)))
    lines = captured.get().splitlines()

    assert max(map(len, lines)) <= columns
    assert len(lines) <= rows - 1
    assert lines[0].startswith("digits")


def test_without_a_terminal_it_is_a_log() -> None:
    """One line a thing worth telling, each flushed when it happens, each told once though all nodes report it."""
    stream = Flushed()
    view = open_view(stream, "digits", ENVIRON)
    for each in FAULTS:
        view.update([each])
        assert stream.flushed == stream.getvalue()
    view.close()
    lines = stream.getvalue().splitlines()

    assert isinstance(view, LogView)
    assert lines[0] == "digits"
    assert sum("generation 2: 6 workers on 3 nodes" in line for line in lines) == 1
    assert sum("fault: kill node 1" in line for line in lines) == 1
    assert sum("the job succeeded" in line for line in lines) == 1
    assert sum("node-1 was lost" in line for line in lines) == 1
    assert 15 < len(lines) < 40


def test_a_log_tells_the_steps_now_and_then() -> None:
    """Every ten seconds while nothing else happens."""
    stream = Flushed()
    view = open_view(stream, "digits", ENVIRON)
    view.update([*start(0, "a", 1, 1), *(steps(1 + at, "a", 1, 0, at) for at in range(40)), record(41, "x")])
    lines = [line for line in stream.getvalue().splitlines() if " step " in line and "trains" not in line]

    assert [line.split()[:3] for line in lines] == [
        ["0:11", "step", "10,"],
        ["0:21", "step", "20,"],
        ["0:31", "step", "30,"],
    ]


@pytest.mark.parametrize(("term", "kind"), [("xterm", LiveView), ("dumb", LogView), (None, LogView)])
def test_a_terminal_that_cannot_draw(term: str | None, kind: type) -> None:
    """In place only where the terminal can; a dumb one gets the log."""
    terminal = Terminal(80, 24)
    view = open_view(terminal.stream, "digits", {} if term is None else {"TERM": term})
    terminal.close()

    assert type(view) is kind


class Flushed(io.StringIO):
    """Remembers what was flushed."""

    flushed = ""

    def flush(self) -> None:
        self.flushed = self.getvalue()


@pytest.mark.parametrize("name", ["faults", "quiet_faults", "relaunched"])
def test_the_log_and_the_figures_count_the_same_restarts(name: str) -> None:
    """Every change of generation is one line, under the kind by which the summary counts it."""
    relaunched = [*start(0, "a", 1, 1), record(5, "launcher_started"), *start(9, "a", 1, 1), record(20, "x")]
    records = relaunched if name == "relaunched" else recording(name)
    stream = io.StringIO()
    LogView(stream, "digits").update(records)
    told = Counter(re.findall(r" restart \((\w+)\): ", stream.getvalue()))

    assert told == {kind: number for kind, number in figures(history(records)).restarts.items() if number}
    assert told


def test_a_script_that_reports_no_steps_is_shown_to_run() -> None:
    """After the time that a start takes, the view names the state and what would report the steps."""
    shown = Shown()
    for each in start(0, "a", 1, 1):
        shown = apply_record(shown, each)
    screens = [_drawn(shown, at) for at in (SILENT_SECONDS - 1, SILENT_SECONDS + 1)]

    assert ["start" in screen and "no step yet" in screen for screen in screens] == [True, False]
    assert ["run " in screen and "elastic_infra.training.Progress" in screen for screen in screens] == [False, True]


def _drawn(shown: Shown, now: float) -> str:
    console = Console(file=io.StringIO(), width=100, height=20, color_system=None)
    with console.capture() as captured:
        console.print(draw(shown, "digits", now, (100, 20)))
    return captured.get()
