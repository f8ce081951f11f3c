"""The slow storage of the scripts, seen from outside: its readers are the workers that train."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLOW_SECONDS = 0.15
"""A row; a worker reads four of them for a step. Slow enough that no job ends while something is to happen to it."""
ROWS_READ = 32
"""A rank that has read so many has made steps with most of them: no loader here reads further ahead."""


@dataclass(frozen=True)
class Storage:
    """A folder with the storage's speed and its access log."""

    folder: Path

    def slow_down(self) -> None:
        """Let every row take its time."""
        self._set(SLOW_SECONDS)

    def speed_up(self) -> None:
        """Let the job end soon."""
        self._set(0.0)

    def reads(self) -> list[dict[str, Any]]:
        """Every whole line of the access log so far."""
        path = self.folder / "access_log"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def trainers(self, world: int) -> dict[int, int]:
        """The process that last read for each rank of a group of this size."""
        return {read["rank"]: read["trainer"] for read in self.reads() if read["world"] == world}

    def everyone(self) -> set[int]:
        """Every process that has trained."""
        return {read["trainer"] for read in self.reads()}

    def trains(self, world: int, old: Collection[int] = ()) -> bool:
        """Whether a whole group of this size makes steps, in processes other than the old ones."""
        new = Counter(
            (read["rank"], read["trainer"])
            for read in self.reads()
            if read["world"] == world and read["trainer"] not in old
        )
        return {rank for (rank, _), rows in new.items() if rows >= ROWS_READ} == set(range(world))

    def _set(self, seconds: float) -> None:
        temporary = self.folder / "latency.new"
        temporary.write_text(str(seconds))
        os.replace(temporary, self.folder / "latency")  # noqa: PTH105  all or nothing, as for the scripts' checkpoints
