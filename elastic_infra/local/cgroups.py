"""The memory limit of a pod, as far as this machine allows one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_PARENT_OF_GROUPS: Final = Path("/sys/fs/cgroup")
_CLONE_NEWNS: Final = 0x00020000


@dataclasses.dataclass(frozen=True)
class Cgroups:
    """The means by which memory is limited on this machine.

    Attributes:
        parent: the cgroup below which the pods' cgroups are made; None where none can be made.
        file: the file in a cgroup that takes the limit.
    """

    parent: Path | None = None
    file: str = ""

    def describe(self) -> str:
        """How limits are enforced, as part of the first lines of a run."""
        if self.parent is not None:
            return "held by a cgroup"
        return "held for each process alone (RLIMIT_DATA; no cgroup can be made here)"


def find(proc: Path = Path("/proc"), root: Path = _PARENT_OF_GROUPS) -> Cgroups:
    """The means that work here, tried by making a cgroup and removing it."""
    for cgroups in _candidates(proc, root):
        assert cgroups.parent is not None  # noqa: S101 - for the type checker
        probe = cgroups.parent / f"elastic-infra-probe-{os.getpid()}"
        try:
            probe.mkdir()
        except OSError:
            continue
        usable = (probe / cgroups.file).exists()
        probe.rmdir()
        if usable:
            return cgroups
    return Cgroups()


def make(cgroups: Cgroups, name: str, memory_bytes: int) -> Path | None:
    """A cgroup with this limit; None where cgroups cannot be made.

    Raises:
        OSError: the cgroup cannot be made although a trial succeeded.
    """
    if cgroups.parent is None:
        return None
    group = cgroups.parent / name
    group.mkdir(exist_ok=True)
    (group / cgroups.file).write_text(str(memory_bytes))
    return group


def remove(group: Path) -> None:
    """Remove a cgroup that has no process any more."""
    with contextlib.suppress(OSError):
        group.rmdir()


def _candidates(proc: Path, root: Path) -> list[Cgroups]:
    """Cgroups whose children might take a limit: v1's own first, then v2's own and its parent."""
    found = []
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            mount = root / "memory"
            found += [Cgroups(place, "memory.limit_in_bytes") for place in (mount / path.lstrip("/"), mount)]
        elif not controllers and (root / "cgroup.controllers").exists():
            own = root / path.lstrip("/")
            found += [Cgroups(place, "memory.max") for place in (own, own.parent)]
    return [cgroups for cgroups in found if cgroups.parent is not None and cgroups.parent.is_dir()]


def can_mount() -> bool:
    """Whether a process may have its own mounts, tried in a process that ends at once."""
    if os.geteuid() != 0:
        return False
    probe = f"import ctypes; raise SystemExit(ctypes.CDLL(None).unshare({_CLONE_NEWNS}) != 0)"
    return subprocess.run([sys.executable, "-I", "-S", "-c", probe], check=False, capture_output=True).returncode == 0
