"""The control group that holds every pod, in each hierarchy of cgroup v1 or in the one of v2."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
SHARES_PER_CPU = 1024
"""The weight of one process under v1: without it all pods together would weigh no more than that."""
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


def hierarchies(root: Path = ROOT) -> Iterator[Path]:
    """The roots of all mounted hierarchies: the folder itself under v2, its subfolders under v1."""
    if (root / "cgroup.controllers").exists():
        yield root
        return
    for folder in sorted(root.iterdir()):
        if not folder.is_symlink() and (folder / "cgroup.procs").exists():
            yield folder


def create(name: str, root: Path = ROOT) -> None:
    """Makes the group; a cpuset group of v1 takes no process until it has CPUs and memory nodes."""
    for hierarchy in hierarchies(root):
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        if (group / "cpu.shares").exists():
            (group / "cpu.shares").write_text(str(SHARES_PER_CPU * (os.cpu_count() or 1)))
        for file in CPUSET_FILES:
            if hierarchy != root and (hierarchy / file).exists():
                (group / file).write_text((hierarchy / file).read_text())


def remove(name: str, root: Path = ROOT) -> None:
    """Removes the group with all below it; its processes must be gone."""
    for hierarchy in hierarchies(root):
        groups = sorted((hierarchy / name).glob("**/"), reverse=True)
        for group in groups:
            with suppress(FileNotFoundError):
                group.rmdir()
