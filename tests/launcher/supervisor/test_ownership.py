"""What a launch may kill: its own processes, told from others by start time, environment, group and session."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from elastic_infra.launcher import processes
from elastic_infra.launcher.processes import Process
from elastic_infra.launcher.supervisor import ownership
from elastic_infra.launcher.supervisor.ownership import Owner

OWNER = Owner(supervisor=1, mark=b"ELASTIC_INFRA_LAUNCH=mine")


def process(pid: int, group: int, *, parent: int = 500, started: int = 0) -> Process:
    return Process(pid=pid, parent=parent, group=group, session=group, state="S", started=started)


CASES = [
    ("a worker", process(10, 10, started=7), True),
    ("a child of a worker", process(11, 10, started=8), True),
    ("a foreign process elsewhere", process(12, 12, started=9), False),
    ("a child of a foreign process that has a dead worker's pid", process(21, 20, started=99), False),
    ("a child that outlives its worker", process(31, 30, started=9), True),
    ("the supervisor", process(1, 10, started=1), False),
    ("a known child", process(40, 10, started=7), False),
]


@pytest.mark.parametrize(("case", "one", "is_ours"), CASES, ids=[case[0] for case in CASES])
def test_members(case: str, one: Process, is_ours: bool) -> None:
    """A group is ours as long as its leader's pid was not used again."""
    table = [process(10, 10, started=7), process(20, 20, started=98), one]
    found = ownership.members(table, {10: 7, 20: 5, 30: 6}, owner=OWNER, known={40})

    assert (one in found) == is_ours, case


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.send_signal(signal.SIGKILL)
        child.wait()


def test_orphans_are_known_by_their_environment(children: list[subprocess.Popen[bytes]]) -> None:
    """Of the supervisor's unknown children only those that carry the launch's mark may be killed."""
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    marks = ("mine", "another", "mine")
    for mark in marks:
        environ = {**os.environ, "ELASTIC_INFRA_LAUNCH": mark}
        children.append(subprocess.Popen(sleep, env=environ, stdout=subprocess.PIPE))
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()  # executed, not only forked
        child.stdout.close()
    seen = [processes.read(child.pid) for child in children]
    table = [one for one in seen if one is not None]
    owner = Owner(os.getpid(), OWNER.mark, before=frozenset({table[2].identity}))

    assert [owner.owns(one) for one in table] == [True, False, False]


def test_an_orphan_that_is_ending_is_waited_for() -> None:
    """It shows no environment any more, and would be left as a zombie; a child from before the launch stays foreign."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped
    ending = processes.read(pid)
    os.waitpid(pid, 0)
    assert ending is not None

    assert ending.is_ending
    assert Owner(os.getpid(), OWNER.mark).owns(ending)
    assert not Owner(os.getpid(), OWNER.mark, before=frozenset({ending.identity})).owns(ending)
    assert not Owner(1, OWNER.mark).owns(ending)


def test_who_holds_an_accelerator(tmp_path: pathlib.Path) -> None:
    """A device that computes counts, one that only manages does not."""
    held = {1: "/dev/nvidia0", 2: "/dev/nvidiactl", 3: "/dev/dri/renderD128", 4: "/dev/null", 5: "/dev/accel0"}
    for pid, path in held.items():
        folder = tmp_path / str(pid) / "fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(path)

    assert [pid for pid in held if processes.holds_accelerator(pid, str(tmp_path))] == [1, 3, 5]
