"""A run on a terminal: faults can be typed, and Ctrl-C works."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic_infra.timeline.files import Reader
from tests.local.running import FOREVER, PATIENCE_SECONDS, write_job

pytestmark = pytest.mark.timeout(300)
IN_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def test_typed_faults(tmp_path: Path) -> None:
    """A fault that is typed happens, one that cannot is refused with the reason, and Ctrl-C ends the job."""
    job, work = write_job(tmp_path, args=[str(FOREVER)]), tmp_path / "work"
    program = [sys.executable, "-m", "elastic_infra.cli", "run", str(job), "--workdir", str(work), "--timeout", "240"]
    with subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, *program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
    ) as terminal:
        assert terminal.stdin is not None
        wait_for(lambda: "progress" in events(work), terminal)
        terminal.stdin.write(b"kill node 5\n")
        wait_for(lambda: "refused" in events(work), terminal)
        terminal.stdin.write(b"scale 2\n")
        wait_for(lambda: events(work).count("node_started") == 2, terminal)
        terminal.stdin.write(b"\x03")
        assert terminal.wait(PATIENCE_SECONDS) == 130
    assert events(work).count("fault") == 1
    assert events(work).count("node_exited") == 2


def test_a_terminal_that_controls_no_session(tmp_path: Path) -> None:
    """Faults typed there are read, as under an IDE or `setsid`, and the terminal's end does not end the job."""
    job, work = write_job(tmp_path, args=[str(FOREVER)]), tmp_path / "work"
    program = [sys.executable, "-m", "elastic_infra.cli", "run", str(job), "--workdir", str(work), "--timeout", "240"]
    terminal, keyboard = os.openpty()
    with subprocess.Popen(program, stdin=keyboard, stdout=subprocess.DEVNULL, start_new_session=True) as run:
        os.close(keyboard)
        wait_for(lambda: "progress" in events(work), run)
        os.write(terminal, b"scale 2\n")
        wait_for(lambda: events(work).count("node_started") == 2, run)
        os.close(terminal)
        (next((work / "claims").iterdir()) / "finish").touch()
        assert run.wait(PATIENCE_SECONDS) == 0
    assert events(work).count("fault") == 1


def events(work: Path) -> list[str]:
    """Names of what has happened."""
    folder = work / "events"
    return [record.event for record in Reader([folder]).read()] if folder.is_dir() else []


def wait_for(condition: Callable[[], object], terminal: subprocess.Popen[bytes]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert terminal.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
