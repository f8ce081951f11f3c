"""Running other programs: output, reasons, bounds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tools.run import SetupError, last_line, needed, output


def test_output_is_what_was_printed() -> None:
    """Standard output without the blank around it; the variables given reach the program."""
    command = [sys.executable, "-c", "import os; print(os.environ['GREETING'])"]

    assert output(command, environ={"GREETING": "hello"}) == "hello"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; print('no luck', file=sys.stderr); sys.exit(3)", "no luck"),
        ("import sys; print('only here'); sys.exit(3)", "only here"),
        ("raise SystemExit(3)", "exit code 3"),
    ],
)
def test_a_failure_says_why_in_one_line(program: str, reason: str) -> None:
    """The last thing a program said is the best reason there is."""
    with pytest.raises(SetupError, match=f"failed: {reason}$"):
        output([sys.executable, "-c", program])


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """No traceback for a program that is not there."""
    with pytest.raises(SetupError, match=r"`absent` cannot be started: No such file"):
        output([tmp_path / "absent"])


def test_a_hang_ends_with_everything_it_started(tmp_path: Path) -> None:
    """What outlives its limit is killed together with its own children."""
    note = tmp_path / "child"
    shell = f"sleep 600 & echo $! > {note}; wait"

    with pytest.raises(SetupError, match=r"was not done within 0.5 s"):
        output(["sh", "-c", shell], limit_seconds=0.5)

    child = int(note.read_text())
    deadline = time.monotonic() + 30
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child)


def is_running(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_not_on_path_says_what_it_is_for(tmp_path: Path) -> None:
    """The message names the program and the way out."""
    with pytest.raises(SetupError, match=r"^curl is not on PATH. Install it.$"):
        needed("curl", "Install it.", str(tmp_path))


def test_a_program_on_path_is_found() -> None:
    """The first folder of PATH that holds it wins."""
    assert os.access(needed("sh", "Every machine has one."), os.X_OK)


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("one\n\ntwo\n \n", "two"), ("  one  ", "one")])
def test_last_line_says_something(text: str, expected: str) -> None:
    """Blank lines say nothing."""
    assert last_line(text) == expected
