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
        pytest.param(("--faults", "16"), id="whole"),
        pytest.param(("--faults", "30", "--fixed"), id="fixed"),
        pytest.param(
            ("--faults", "16", "--sharded", "--workers", "1"),
            id="sharded",
            marks=pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="its FSDP2 needs a GPU"),
        ),
    ],
)
def test_dozens_of_faults_in_place(tmp_path: pathlib.Path, options: tuple[str, ...]) -> None:
    """Every law of the soak is kept: exactly once, equal weights, nothing that a process gathers.

    Of a fixed size the weights after each of its steps are, to the bit, those of the same job without faults.
    """
    command = [sys.executable, "-m", "tests.launcher.soak_in_place", "--seed", "1", *options]
    done = subprocess.run([*command, "--folder", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
