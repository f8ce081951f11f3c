"""Against jobs that really run: random faults on this machine, and the goodput that their events tell."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.simulate import __main__ as benchmark
from elastic_infra.simulate import arms
from elastic_infra.simulate.scenario import Kind


def assert_close(lived: benchmark.Lived, others: list[benchmark.Lived]) -> None:
    """Goodput and time are as simulated, and so is what was lost, with the latency of the script's other plan."""
    found = benchmark.ratios(lived, others)

    assert math.isclose(found.goodput, 1, rel_tol=benchmark.CLOSE), found
    assert math.isclose(found.seconds, 1, rel_tol=benchmark.CLOSE), found
    assert abs(found.own_lost - 1) <= benchmark.CLOSE_LOSS, found


def committed() -> list[benchmark.Lived]:
    """The jobs of the committed file."""
    return benchmark.lives(json.loads(benchmark.RESULTS.read_text()))


@pytest.mark.slow
@pytest.mark.launcher
@pytest.mark.timeout(600)
@pytest.mark.parametrize("arm", benchmark.SCRIPTS)
def test_goodput_of_random_faults(tmp_path: Path, arm: arms.Name) -> None:
    """From each plan's faults at the moments when they came, with the latency that this machine has in the other plan.

    Slow, for a job trains until its faults are over, and only right on a machine that does nothing else.
    """
    everyone = []
    for seed in benchmark.SEEDS:
        (folder := tmp_path / str(seed)).mkdir()
        everyone.append(benchmark.measured(folder, arm, seed))

    for lived in everyone:
        assert_close(lived, everyone)


def test_the_committed_figures_are_close() -> None:
    """The median of each plan in both ways; the loss of one run is a second or less, and differs from run to run."""
    everyone = committed()
    cases: dict[tuple[str, int], list[benchmark.Lived]] = {(lived.arm, lived.seed): [] for lived in everyone}
    for lived in everyone:
        cases[lived.arm, lived.seed].append(lived)

    assert cases.keys() == {(arm, seed) for arm in benchmark.SCRIPTS for seed in benchmark.SEEDS}
    for runs in cases.values():
        median = sorted(runs, key=lambda lived: lived.lost)[len(runs) // 2]
        assert_close(median, everyone)
        assert abs(benchmark.ratios(median, everyone).lost - 1) <= benchmark.CLOSE_DEFAULT[median.arm]


def test_goodput_and_time_alone_are_little_proof() -> None:
    """A model that loses nothing would be as close, and the page says so: so the loss is compared as well."""
    nothing_lost = [(1 / lived.goodput, lived.work / lived.seconds) for lived in committed()]

    assert all(math.isclose(part, 1, rel_tol=benchmark.CLOSE) for parts in nothing_lost for part in parts)


def test_a_loss_is_simulated_with_what_a_change_cost_elsewhere() -> None:
    """A hundred seconds of training with four changes of two seconds, where another plan's two cost four each."""
    crashes: tuple[tuple[Kind, float], ...] = tuple(("crash", 20.0 * number) for number in range(1, 5))
    lived = benchmark.Lived("in place", 1, 108.0, 100.0, 0.001, crashes)
    other = benchmark.Lived("in place", 2, 108.0, 100.0, 0.001, crashes[:2])

    assert lived.latency == pytest.approx(2.0, abs=0.01)
    assert other.latency == pytest.approx(4.0, abs=0.01)
    assert benchmark.ratios(lived, [lived, other]).own_lost == pytest.approx(2.0, abs=0.01)
    assert benchmark.ratios(other, [lived, other]).own_lost == pytest.approx(0.5, abs=0.01)
