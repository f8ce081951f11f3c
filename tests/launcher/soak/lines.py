"""Files of JSON lines that other processes append to, read as they grow."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any


@dataclass
class Lines:
    """A file of JSON lines, read as it grows."""

    path: Path
    all: list[dict[str, Any]] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> None:
        """Read the new lines."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.all += [json.loads(line) for line in whole.splitlines()]

    def last(self, event: str, count: int) -> list[dict[str, Any]]:
        """The newest lines of one kind, oldest first."""
        return list(islice((line for line in reversed(self.all) if line["event"] == event), count))[::-1]
