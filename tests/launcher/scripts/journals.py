"""The journal of a test's worker: one JSON line for each event, in the file that ``JOURNAL`` names."""

from __future__ import annotations

import json
import os
import time


def journal(event: str, **more: object) -> None:
    """Append one line; short appends are atomic."""
    record = {
        "event": event,
        "rank": int(os.environ["RANK"]),
        "generation": int(os.environ["ELASTIC_INFRA_GENERATION"]),
        "pid": os.getpid(),
        "at": time.monotonic(),
        **more,
    }
    with open(os.environ["JOURNAL"], "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
