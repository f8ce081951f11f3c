"""Reads the event lines of a run while they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


class Tail:
    """Every file of a folder, from its beginning on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def records(self) -> tuple[Record, ...]:
        """What is new since the last call, by the clock of this machine."""
        new = [record for path in sorted(self._folder.glob("*.jsonl")) for record in self._new(path)]
        return tuple(sorted(new, key=_moment))

    def _new(self, path: Path) -> Iterator[Record]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]  # the last line may be half written
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def _moment(record: Record) -> float:
    moment = record.get("monotonic")
    return moment if isinstance(moment, float | int) else 0.0
