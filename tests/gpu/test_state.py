"""What is on a GPU, random numbers included, comes back from a snapshot to the bit."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from elastic_infra.launcher.workers import progress
from tests.gpu import device as devices
from tests.launcher.launched import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "state.py"


@pytest.fixture
def memory() -> Iterator[str]:
    """The folder that a launcher gives its workers for snapshots in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield folder


@pytest.mark.parametrize("source", ["memory", "disk"])
def test_training_goes_on_to_the_bit(device: devices.Kind, tmp_path: pathlib.Path, memory: str, source: str) -> None:
    """The next random numbers, the weights, averages of BatchNorm and moments of Adam are those of the run that saved.

    Among them is a module in bfloat16, and everything is on the device again.
    """
    launched = {progress.VARIABLE: f"0:{memory}/progress-1"}
    saved = run("save", tmp_path, device, launched)
    restored = run("restore", tmp_path, device, launched if source == "memory" else {})

    assert restored.pop("source") == source
    assert saved.pop("source") == ""
    assert set(restored["devices"]) == {device}
    assert restored == saved


def run(part: str, folder: pathlib.Path, device: devices.Kind, environ: Mapping[str, str]) -> dict[str, Any]:
    """One part in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), part, str(folder / "checkpoints"), device],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
