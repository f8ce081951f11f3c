"""Scenarios and arms for tests."""

from __future__ import annotations

from typing import Any

from elastic_infra.simulate.arms import Arm
from elastic_infra.simulate.measured import Latencies
from elastic_infra.simulate.scenario import Costs, Rates, Saving, Scenario

QUIET = Rates(failures=0.0)
MINUTE = 60.0


def scenario(nodes: tuple[int, int] = (2, 4), hours: float = 10.0, **changes: Any) -> Scenario:
    """A job on four nodes to which nothing happens."""
    return Scenario(nodes, hours, **{"rates": QUIET, **changes})


def fixed(nodes: int, failures: float, hours: float, pause: float = 0.0) -> Scenario:
    """A job that trains on all its nodes only; a lost node is replaced at once."""
    rates = Rates(failures, replacement_seconds=1e-3)
    return Scenario((nodes, nodes), hours, rates=rates, costs=Costs(checkpoint=Saving(1.0, pause), snapshot=None))


def restarting(recovery: float, interval: float, pause: float = 0.0) -> Arm:
    """A job that is down for so long after any change, and goes back to its last checkpoint."""
    latencies = Latencies(start=0.0, loss=recovery, preemption=recovery, crash=recovery, join=recovery)
    return Arm(
        "torchrun",
        latencies,
        Saving(interval, pause),
        "checkpoint",
        background_seconds=interval,
        restart_seconds=0.0,
        first_seconds=0.0,
        cold_seconds=recovery,
        stops_in_step=False,
        repeats_step_only=False,
    )


def hours(*, of_interruptions: int, nodes: int, failures: float) -> float:
    """As long as so many interruptions take on average."""
    return of_interruptions * 24_000 / (nodes * failures)
