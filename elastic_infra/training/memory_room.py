"""How much memory this process may still take, so that snapshots are left out where they would end the pod.

What is written to ``/dev/shm`` counts against the container's memory limit, and the kernel kills a process of a
container that goes beyond it, without an error that could be caught.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SPARED: Final = 20
"""One part in so many of the limit stays free, because training itself takes more and less from step to step."""


@dataclasses.dataclass(frozen=True)
class _Files:
    """Names of a cgroup's files."""

    limit: str
    usage: str
    cache: tuple[str, ...]
    """Lines of ``memory.stat`` with the bytes of files that the kernel drops before it kills a process."""


_V1: Final = _Files(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)  # https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
_V2: Final = _Files(
    "memory.max", "memory.current", ("inactive_file", "active_file")
)  # https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files


def bytes_left(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Bytes that the memory limits of this process still leave; None where there is no limit, or none can be read.

    Args:
        root: where cgroups are mounted.
        own: the kernel's list of this process's cgroups.
    """
    rooms = [room for folder, files in _folders(root, own) if (room := _room(folder, files)) is not None]
    return min(rooms, default=None)


def _folders(root: Path, own: Path) -> Iterator[tuple[Path, _Files]]:
    """The memory cgroup of this process and those above, which limit it too; inside a container some are not seen."""
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            if controllers and "memory" not in controllers.split(","):
                continue
            top, files = (root / "memory", _V1) if controllers else (root, _V2)
            parts = [part for part in path.split("/") if part and part != ".."]
            yield from ((top.joinpath(*parts[:count]), files) for count in range(len(parts) + 1))


def _room(folder: Path, files: _Files) -> int | None:
    try:
        limit = int((folder / files.limit).read_text())
        used = int((folder / files.usage).read_text())
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # a folder that is not seen here, or the word "max"
        return None
    dropped = sum(int(counts.get(name, 0)) for name in files.cache)
    return max(0, limit - limit // SPARED - used + dropped)
