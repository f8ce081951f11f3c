"""The line that every worker of every arm writes for each step that is done."""

from __future__ import annotations

import json
import os
import time


def note(step: int, rank: int, world: int, generation: int, waited: float = 0.0) -> None:
    """Append one line by one write, so that lines of several writers do not mix.

    Args:
        waited: seconds between the end of the script's own part of the step and the end of the step.
    """
    fields = {
        "step": step,
        "rank": rank,
        "world": world,
        "generation": generation,
        "pid": os.getpid(),
        "waited": waited,
    }
    line = json.dumps({"event": "step", **fields, "time": time.monotonic()}) + "\n"
    descriptor = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
