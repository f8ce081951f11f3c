"""The runner's own actions, in the launcher's format of events."""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

from elastic_infra.launcher import event_log

FILE: Final = "runner.jsonl"


class Journal:
    """Appends to the runner's event file."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / FILE)

    def write(self, event: str, node: str = "", **fields: str | float | bool | None) -> None:
        """Write one line; ``node`` is empty for an event of the whole job."""
        log = event_log.EventLog(self._path, node)
        log.write(cast(event_log.Name, event), generation=0, attempt=0, fields=fields)
