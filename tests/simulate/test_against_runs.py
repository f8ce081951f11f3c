"""Against jobs that really run: random faults on this machine, and the goodput that their events tell.

Slow, for a job trains until its faults are over, and only right on a machine that does nothing else: the latencies are
those of such a machine. The time before the first step is left out, since importing torch is most of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastic_infra.simulate import arms
from elastic_infra.simulate.run import Run as Life
from elastic_infra.simulate.run import simulate
from elastic_infra.simulate.scenario import HOUR, Change, Costs, Kind, Rates, Saving, Scenario
from elastic_infra.timeline.figures import Figures, figures
from elastic_infra.timeline.history import history
from tests.local.running import FOREVER, Run, write_job

pytestmark = [pytest.mark.slow, pytest.mark.launcher, pytest.mark.timeout(600)]

NODES, FAULTS = 2, 5
BACK_SECONDS = 2.0
"""`elastic-infra run` brings a node back after so long."""
CHANGES: dict[str, Kind] = {"kill node": "loss", "preempt node": "preemption", "kill worker": "crash"}


@pytest.mark.parametrize("seed", [34, 38])
def test_goodput_of_random_faults(tmp_path: Path, seed: int) -> None:
    """From the plan's faults at the moments when they came: goodput and time within 15 %.

    Neither plan has a hang, which no rate of the simulation stands for, and both end with a node that comes back.
    """
    job = write_job(tmp_path, script="sums.py", args=[str(FOREVER)], runtime=None)
    run = Run(job, "--nodes", str(NODES), "--chaos", str(seed), seconds=400)
    try:
        run.wait_for(lambda: len(run.faults()) == FAULTS, "all faults")
        last = len(run.worlds())
        run.wait_for(lambda: run.is_training(NODES, after=last), "training after the last fault")
        assert run.finish() == 0, run.output
    finally:
        run.end()
    known = figures(history(run.events()))
    assert known.goodput is not None
    assert known.first_step_seconds is not None
    seconds = known.wall_seconds - known.first_step_seconds
    goodput = known.goodput * known.wall_seconds / seconds
    life = predicted(run, known)

    assert math.isclose(life.goodput, goodput, rel_tol=0.15), f"{life.goodput} simulated, {goodput} measured"
    assert math.isclose(life.hours * HOUR, seconds, rel_tol=0.15), f"{life.hours * HOUR} simulated, {seconds} measured"


def predicted(run: Run, known: Figures) -> Life:
    """The life of the same job in the simulation from the first step on, with as many steps of the same length."""
    assert known.training_seconds is not None
    assert known.steps is not None
    step = known.training_seconds / (known.steps + known.steps_lost)
    scenario = Scenario(
        (1, NODES),
        known.steps * step / HOUR,
        efficiency=0.5,  # each step does the same work, whatever the number of nodes
        rates=Rates(failures=0.0),
        costs=Costs(0.0, 0.0, step, Saving(step, 0.0), None),
        trace=tuple(sorted(changes(run, known), key=lambda change: change.at)),
        returns=False,
    )
    arm = replace(arms.arm("restarts", scenario), first_seconds=0.0)
    return simulate(scenario, arm, "0")


def changes(run: Run, known: Figures) -> Iterator[Change]:
    """The faults of the run as changes of the simulation."""
    assert known.first_step_seconds is not None
    first = history(run.events()).begin + known.first_step_seconds
    for record in run.events("fault"):
        kind = CHANGES.get(" ".join(record.text("fault").split()[:2]))
        if kind is not None:  # a store that is lost costs no step
            yield Change(record.at - first, kind)
        if kind in {"loss", "preemption"}:
            yield Change(record.at - first + BACK_SECONDS, "return")
