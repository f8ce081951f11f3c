"""Finds and kills every process of a run by the mark in its environment, which its children inherit.

Also a program, the run's guard: it waits for the end of its standard input, which comes with the end of the runner for
any reason, and then removes all processes and scratch folders of the run. Standard library only, no import of the
package, because the program runs by its path.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

MARK: Final = "ELASTIC_INFRA_LOCAL_NODE"
"""Variable in every process of a run: ``<run>:<pod>``."""

_PATIENCE_SECONDS: Final = 30.0
"""A killed process may take a while to vanish (a driver that releases memory)."""


def marked(prefix: str, root: str = "/proc") -> Iterator[int]:
    """Processes whose mark begins with this text, without zombies, which have no environment."""
    wanted = f"{MARK}={prefix}".encode()
    for folder in Path(root).iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if any(entry.startswith(wanted) for entry in (folder / "environ").read_bytes().split(b"\0")):
                    yield int(folder.name)


def kill(prefix: str) -> bool:
    """Send SIGKILL to all marked processes until none is left; False where some do not vanish in time."""
    end = time.monotonic() + _PATIENCE_SECONDS
    pause = 0.002
    while pids := list(marked(prefix)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(0.1, pause * 2)
    return True


def remove(patterns: Iterable[str]) -> None:
    """Delete scratch folders, and cgroups, which only a plain rmdir removes."""
    for path in (Path(found) for pattern in patterns for found in glob.glob(pattern)):  # noqa: PTH207 - absolute
        if (path / "cgroup.procs").exists():
            with contextlib.suppress(OSError):
                path.rmdir()
        else:
            shutil.rmtree(path, ignore_errors=True)


def main(arguments: list[str]) -> None:
    """Guard a run: ``RUN PATTERN...``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1024):
        pass
    run, *patterns = arguments
    kill(f"{run}:")
    remove(patterns)


if __name__ == "__main__":
    main(sys.argv[1:])
