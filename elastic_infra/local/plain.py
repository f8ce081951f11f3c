"""The plainest view: a line for each event that people want to know of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from elastic_infra.timeline import words
from elastic_infra.timeline.records import Record


class PlainView:
    """Writes lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, records: Sequence[Record]) -> None:
        """Write what is new."""
        for record in records:
            if text := words.tell(record):
                self._stream.write(f"{words.moment(record.at)} {record.node or 'job':8} {text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is left to do."""
