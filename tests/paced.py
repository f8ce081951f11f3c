"""Runs a training script with a pause in each step, so that what a test does to it comes early in the training.

Usage: paced.py SECONDS SCRIPT ARGUMENTS...

Else the other nodes train on at full speed while one starts, on the processors that it starts on.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

import torch  # noqa: F401  at the top, as the script itself imports it: workers are forked with it

from elastic_infra import training


class Paced(training.Progress):
    """A script's progress, each step of which takes longer."""

    def step(self, n: int, samples: int | None = None) -> bool:
        """Report a step after the pause."""
        time.sleep(SECONDS)
        return super().step(n, samples)


SECONDS = float(sys.argv[1])

if __name__ == "__main__":
    del sys.argv[:2]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    training.Progress = Paced  # type: ignore[misc]  # what the script is going to import
    runpy.run_path(sys.argv[0], run_name="__main__")
