"""What a reader must know of the machine to judge the figures. Refuses nothing."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.common.results import measured

TRIALS = 3


def import_seconds() -> float:
    """Median time of a fresh process that imports torch, once it is in the page cache."""
    times = [_seconds([sys.executable, "-c", "import torch"]) for _ in range(TRIALS + 1)]
    return statistics.median(times[1:])


def facts(seconds: float, command: str) -> list[str]:
    """What the figures depend on (processor, memory, versions), one line each; the last has the day and the command."""
    version = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return [
        f"torch {version}, Python {platform.python_version()}, Linux {platform.release()}, {os.cpu_count()} CPUs",
        f"importing torch takes {seconds:.1f} s; load average at the start {load}",
        measured(command),
    ]


def _seconds(command: Sequence[str]) -> float:
    begin = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - begin
