"""A worker without torch for the figures in which torch plays no part; its argument says what it does.

It journals what it sees, timed by CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

RANK = int(os.environ["RANK"])
TRAPPING = Path("trapping")


def journal(event: str) -> None:
    """Append one line to this worker's journal."""
    line = {
        "event": event,
        "rank": RANK,
        "world": int(os.environ["WORLD_SIZE"]),
        "pid": os.getpid(),
        "time": time.monotonic(),
    }
    with Path(os.environ["JOURNAL"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def step() -> NoReturn:
    """Write a step to the journal ten times a second, without collectives."""
    while True:
        time.sleep(0.1)
        journal("step")


def wait() -> NoReturn:
    """Sleep until the launcher ends this worker."""
    while True:
        time.sleep(60)


def obey() -> None:
    """End at once when told to."""

    def on_term(*_: object) -> None:
        journal("told")
        os._exit(0)

    signal.signal(signal.SIGTERM, on_term)
    journal("ready")
    wait()


def save_for_long() -> None:
    """Rank 0 fails when its sibling traps SIGTERM; the sibling then works until it is killed."""
    if RANK == 0:
        while not TRAPPING.exists():
            time.sleep(0.01)
        sys.exit(1)

    def on_term(*_: object) -> None:
        journal("told")
        while True:
            time.sleep(0.05)
            journal("alive")

    signal.signal(signal.SIGTERM, on_term)
    TRAPPING.touch()
    wait()


BEHAVIOURS = {"step": step, "wait": wait, "obey": obey, "save_for_long": save_for_long}

if __name__ == "__main__":
    journal("started")
    BEHAVIOURS[sys.argv[1]]()
