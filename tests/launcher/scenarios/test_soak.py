"""Random faults against real launchers, each node in a separate network: `make soak`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.launcher.loopback import ROOT
from tests.launcher.soak import network, plan
from tests.launcher.soak.__main__ import NOT_HERE

pytestmark = [pytest.mark.launcher, pytest.mark.slow]


def soak(folder: pathlib.Path, seed: int, faults: int, workers: int) -> None:
    """Run one soak in a separate process, which adopts the orphans of launchers.

    Raises:
        AssertionError: a law was not kept; with the log of what happened.
    """
    if reason := network.missing():
        pytest.skip(f"no soak: {reason}")
    command = [sys.executable, "-m", "tests.launcher.soak", "--seed", str(seed), "--faults", str(faults)]
    command += ["--workers", str(workers)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--folder", str(folder)], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != NOT_HERE
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("workers", plan.WORKERS)
def test_short_soak(tmp_path: pathlib.Path, workers: int) -> None:
    """Eight random faults: the job succeeds, every law of the soak is kept."""
    soak(tmp_path / "soak", seed=6, faults=8, workers=workers)


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(("workers", "faults"), [(1, 200), (2, 50), (8, 50)])
def test_long_soak(tmp_path: pathlib.Path, workers: int, faults: int) -> None:
    """Hundreds of random faults, on nodes of one, two and eight workers."""
    soak(tmp_path / "soak", seed=4, faults=faults, workers=workers)
