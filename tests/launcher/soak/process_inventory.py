"""The workers alive at one moment, from the kernel: every worker locks its own file while it lives.

The kernel lets go of a lock the moment its process has ended, however it ended, so an inventory needs no clock and no
word of the launcher's. A moment at which two generations have all their workers begins with the start of a worker: if
every worker takes the inventory when it starts, no such moment goes unseen. Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Worker:
    """One process of one generation."""

    node: str
    generation: int
    meeting: str
    """Address and port of the group's meeting place: with the number they name one group, also after a store was
    reborn."""
    rank: int
    world: int
    pid: int

    @property
    def group(self) -> tuple[int, str]:
        """The group it trains with."""
        return (self.generation, self.meeting)


def enter(folder: Path, worker: Worker) -> int:
    """Be alive in the folder until the process ends; the file descriptor must stay open."""
    unseen = folder / f".{worker.pid}"
    descriptor = os.open(unseen, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps(dataclasses.asdict(worker)).encode())
    unseen.rename(folder / f"{worker.generation}-{worker.rank}-{worker.pid}")  # seen only once it is locked
    return descriptor


def take(folder: Path) -> tuple[Worker, ...]:
    """All workers alive at the end of the first look: the second look found them still alive."""
    first = _look(folder)
    return tuple(worker for worker in _look(folder) if worker in first)


def _look(folder: Path) -> tuple[Worker, ...]:
    seen = (_alive(path) for path in sorted(folder.glob("[0-9]*")))
    return tuple(worker for worker in seen if worker is not None)


def _alive(path: Path) -> Worker | None:
    """The worker whose file this is; the file of a dead one is removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Worker(**json.loads(os.read(descriptor, 4096)))
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return None
    finally:
        os.close(descriptor)
