"""Random faults against workers that are moved and not restarted: `make soak`."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import torch

from tests.launcher.loopback import ROOT

pytestmark = [pytest.mark.launcher, pytest.mark.slow]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="whole"),
        pytest.param(
            ("--sharded", "--workers", "1"),
            id="sharded",
            marks=pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="its FSDP2 needs a GPU"),
        ),
    ],
)
def test_a_dozen_faults_in_place(tmp_path: pathlib.Path, options: tuple[str, ...]) -> None:
    """Every law of the soak is kept: exactly once, equal weights, nothing that a process gathers."""
    command = [sys.executable, "-m", "tests.launcher.soak_in_place", "--seed", "1", "--faults", "16", *options]
    done = subprocess.run([*command, "--folder", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
