"""The limits of the store's pod around the store's process, as the kubelet sets them; for root, on cgroup v1 and v2."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from elastic_infra.config import RendezvousResources
from elastic_infra.config.values import quantity
from tests.cluster.testbed import cgroups

PERIOD: Final = 100_000
"""Microseconds in which a container may use its share of a processor: the kubelet's default."""
ENOUGH: Final = 1 << 40
"""Bytes, more than there are."""


class Limits(NamedTuple):
    """What the store may use."""

    cpu: float
    """Cores."""
    memory: int
    """Bytes."""

    @classmethod
    def of_a_pod(cls) -> Limits:
        """The defaults of ``rendezvous.resources``."""
        given = RendezvousResources()
        return cls(float(quantity(given.cpu)), int(quantity(given.memory)))


@dataclass(frozen=True)
class Group:
    """A control group with these limits, by its folder in each hierarchy."""

    folders: tuple[Path, ...]

    def command(self, command: list[str]) -> list[str]:
        """The same command, whose process is in the group from its first byte."""
        enter = "".join(f'echo $$ > "{folder}/cgroup.procs"; ' for folder in self.folders)
        return ["sh", "-c", f'{enter}exec "$@"', "sh", *command]

    def throttled_seconds(self) -> float:
        """How long the processes had used up their share of a period so far."""
        stat = self._lines("cpu.stat")
        return stat["throttled_usec"] / 1e6 if "throttled_usec" in stat else stat["throttled_time"] / 1e9

    def peak_megabytes(self) -> float:
        """The most memory so far, that of connections in the kernel included."""
        peaks = ("memory.peak", "memory.max_usage_in_bytes", "memory.kmem.tcp.max_usage_in_bytes")
        return sum(int(file.read_text()) for name in peaks if (file := self._file(name))) / (1 << 20)

    def kills(self) -> int:
        """Processes that were ended for want of memory."""
        return self._lines("memory.events" if self._file("memory.events") else "memory.oom_control")["oom_kill"]

    def _lines(self, name: str) -> dict[str, int]:
        file = self._file(name)
        pairs = (line.split() for line in file.read_text().splitlines()) if file else ()
        return {key: int(value) for key, value in pairs}

    def _file(self, name: str) -> Path | None:
        return next((folder / name for folder in self.folders if (folder / name).exists()), None)

    def count_all(self) -> None:
        """Have the memory of connections counted, which v1 does only where it has a limit of its own."""
        self._write({"memory.kmem.tcp.limit_in_bytes": str(ENOUGH)})

    def set(self, limits: Limits) -> None:
        """Set both limits, under the names of either version."""
        share = round(limits.cpu * PERIOD)
        self._write({
            "cpu.max": f"{share} {PERIOD}",
            "memory.max": str(limits.memory),
            "cpu.cfs_period_us": str(PERIOD),
            "cpu.cfs_quota_us": str(share),
            "memory.limit_in_bytes": str(limits.memory),
        })  # fmt: skip

    def _write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            if file := self._file(name):
                file.write_text(value)


@contextmanager
def limited(limits: Limits | None, root: Path = cgroups.ROOT) -> Iterator[Group]:
    """A group with these limits, or one that only counts, until its processes are gone.

    Raises:
        OSError: this user may not make one here.
    """
    name = f"rendezvous-{os.getpid()}"
    cgroups.create(name, root)
    try:
        group = Group(tuple(folder / name for folder in cgroups.hierarchies(root)))
        group.count_all()
        if limits:
            group.set(limits)
        yield group
    finally:
        cgroups.remove(name, root)
