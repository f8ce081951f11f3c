"""The process table: what is read of a process, and what a process that is gone costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from elastic_infra.launcher import processes


def entry(root: Path, pid: int, name: str) -> None:
    """A process as the kernel shows it."""
    folder = root / str(pid)
    folder.mkdir(parents=True)
    ticks = os.sysconf("SC_CLK_TCK")
    rest = " ".join(["0"] * 7 + [str(3 * ticks), str(2 * ticks)] + ["0"] * 20)
    (folder / "stat").write_text(f"{pid} ({name}) S 1 7 8 {rest}\n")
    (folder / "status").write_text(f"Name:\t{name}\nSigCgt:\t{1 << (signal.SIGTERM - 1):016x}\n")
    (folder / "smaps_rollup").write_text("Rss: 9000 kB\nPss: 5000 kB\n")


def test_a_line_is_read_whatever_the_name(tmp_path: Path) -> None:
    """A program may call itself anything, brackets and blanks included."""
    entry(tmp_path, 12, "a) R (b c")

    assert processes.read(12, str(tmp_path)) == processes.Process(12, 1, 7, 8, "S", 5.0)
    assert processes.resident_megabytes(12, str(tmp_path)) == 5
    assert processes.catches(12, signal.SIGTERM, str(tmp_path))
    assert not processes.catches(12, signal.SIGINT, str(tmp_path))


def test_only_processes_are_listed(tmp_path: Path) -> None:
    """The folder holds much else, and a process may end while it is read."""
    entry(tmp_path, 12, "a")
    (tmp_path / "13").mkdir()
    (tmp_path / "sys").mkdir()

    assert [process.pid for process in processes.scan(str(tmp_path))] == [12]


def test_a_process_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """It may go at any moment."""
    assert processes.read(12, str(tmp_path)) is None
    assert processes.resident_megabytes(12, str(tmp_path)) == 0
    assert not processes.catches(12, signal.SIGTERM, str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    processes.send(ended.pid, signal.SIGTERM)


def test_this_process_is_there() -> None:
    """On a real kernel."""
    found = {process.pid: process for process in processes.scan()}

    assert found[os.getpid()].parent == os.getppid()
    assert found[os.getpid()].group == os.getpgrp()
