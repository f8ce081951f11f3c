"""The look at a cluster node before training, on the devices for which it is made.

The CPU has none that could be counted: there the loopback alone is tried, with gloo.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from elastic_infra.launcher import health
from elastic_infra.launcher.exit_codes import RETRY
from tests.gpu import device as devices
from tests.launcher.launched import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.launcher, pytest.mark.timeout(600)]


@pytest.fixture
def gpus(device: devices.Kind) -> int:
    """How many there are."""
    if device == "cpu":
        pytest.skip("the CPU has no devices to count")
    return int(torch.cuda.device_count())


def check(count: int, *options: str) -> tuple[int, str]:
    """Exit code and last line of the init container's program."""
    done = subprocess.run(
        [sys.executable, "-m", "elastic_infra.launcher.health", "--gpus", str(count), *options],
        env={**os.environ, "ELASTIC_INFRA_CLUSTER_NODE": "gpu-7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.strip().rpartition("\n")[2]


def test_every_gpu_is_counted_and_adds_up(gpus: int) -> None:
    """A node that has what is asked for is fit, with the loopback over all of its GPUs as well."""
    assert check(gpus, "--nccl") == (0, "health: cluster node gpu-7 is fit to train.")


def test_one_gpu_too_few_is_told(gpus: int) -> None:
    """The number that torch can use is the one that counts."""
    code, said = check(gpus + 1)

    assert code == RETRY
    assert said.endswith(f"is not fit to train: it shows {gpus} of {gpus + 1} GPUs.")


def test_two_devices_add_up_over_the_loopback(device: devices.Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """By NCCL with two GPUs, by gloo with two processes."""
    if device == "cpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    elif torch.cuda.device_count() < 2:
        pytest.skip(f"needs two GPUs and finds {torch.cuda.device_count()}")

    assert [*health.loopback_faults(2)] == []


def test_a_gpu_that_is_gone_is_named(gpus: int) -> None:
    """The process without a GPU ends with CUDA's own words, and the others do not wait for it."""
    faults = [*health.loopback_faults(gpus + 1)]

    assert f"GPU {gpus} cannot add up with the others: " in faults[-1]
    assert "invalid device ordinal" in faults[-1]
