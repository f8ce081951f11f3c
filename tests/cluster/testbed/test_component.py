"""How parts start: in order, at the same time where they may, and with a useful word when one fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.testbed.component import Component, StartError, run, start_all


@contextmanager
def processes() -> Iterator[list[int]]:
    """Ends what a test started, by its id."""
    pids: list[int] = []
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def recorder(names: list[str], pids: list[int]) -> Callable[[Component, int | None, float], None]:
    """A component that notes its start."""

    def started(component: Component, pid: int | None, _seconds: float) -> None:
        names.append(component.name)
        if pid is not None:
            pids.append(pid)

    return started


def test_a_part_starts_when_what_it_needs_is_ready(tmp_path: Path) -> None:
    """Files are written before the process starts, and `finish` runs before dependents start."""
    marker, config = tmp_path / "marker", tmp_path / "sub" / "config"
    first = Component("first", finish=marker.touch)
    second = Component(
        "second",
        command=(sys.executable, "-c", f"import time; assert open({str(config)!r}).read() == 'x'; time.sleep(60)"),
        needs=("first",),
        files={config: "x"},
        ready=marker.exists,
    )
    names: list[str] = []
    with processes() as pids:
        start_all([first, second], tmp_path, recorder(names, pids))

        assert names == ["first", "second"]
        assert len(pids) == 1
        assert config.stat().st_mode & 0o077 == 0


def test_a_part_that_ends_says_why(tmp_path: Path) -> None:
    """The error names the part, its exit status and the end of its log; dependents do not start."""
    broken = Component("broken", command=("sh", "-c", "echo no disk; exit 3"), ready=lambda: False)
    names: list[str] = []
    with pytest.raises(StartError, match=r"broken: ended with status 3(.|\n)*no disk"):
        start_all([broken, Component("next", needs=("broken",))], tmp_path, recorder(names, []))

    assert names == []


def test_a_failed_command_says_what_it_said() -> None:
    """The message holds the command and its error output."""
    with pytest.raises(StartError, match=r"'sh -c echo because >&2; exit 4' ended with 4: because"):
        run("sh", "-c", "echo because >&2; exit 4")
