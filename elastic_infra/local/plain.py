"""The plainest view: one line an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from elastic_infra.local.tail import Record

_HEAD = frozenset({"time", "monotonic", "event", "node", "generation", "attempt"})


class PlainView:
    """Writes lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, records: Sequence[Record]) -> None:
        """Write what is new."""
        for record in records:
            own = " ".join(f"{name}={value}" for name, value in record.items() if name not in _HEAD and value != "")
            clock = str(record.get("time", ""))[11:19]
            self._stream.write(f"{clock} {record.get('node') or '-':8} {record['event']} {own}\n".rstrip() + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is left to do."""
