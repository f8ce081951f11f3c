"""Against jobs that really run: random faults on this machine, and the goodput that their events tell."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.simulate import __main__ as benchmark
from elastic_infra.simulate import arms


def assert_close(pair: benchmark.Pair) -> None:
    """Goodput and time are as simulated, within 15 %."""
    assert all(math.isclose(ratio, 1, rel_tol=benchmark.CLOSE) for ratio in pair.ratios), pair


@pytest.mark.slow
@pytest.mark.launcher
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", benchmark.SEEDS)
@pytest.mark.parametrize("arm", benchmark.SCRIPTS)
def test_goodput_of_random_faults(tmp_path: Path, arm: arms.Name, seed: int) -> None:
    """From the plan's faults at the moments when they came.

    Slow, for a job trains until its faults are over, and only right on a machine that does nothing else: the latencies
    are those of such a machine.
    """
    assert_close(benchmark.compared(tmp_path, arm, seed))


def test_the_committed_figures_are_close() -> None:
    """Each plan in both ways."""
    results = json.loads(benchmark.RESULTS.read_text())
    pairs = [benchmark.Pair(**pair) for pair in results["pairs"]]

    assert {(pair.arm, pair.seed) for pair in pairs} == {
        (arm, seed) for arm in benchmark.SCRIPTS for seed in benchmark.SEEDS
    }
    for pair in pairs:
        assert_close(pair)
