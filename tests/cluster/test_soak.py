"""One long job under one random fault after the other, with other faults than those of the committed page."""

from __future__ import annotations

import pytest

from benchmarks.cluster import soak
from tests.cluster.cluster import Namespace
from tests.cluster.stack import job_stack
from tests.engine.engine import Engine

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(7200)]


def test_no_random_fault_costs_the_job(space: Namespace, engine: Engine) -> None:
    """After every fault all nodes train together again, no checkpointed step is done twice, the weights are exact."""
    found = soak.live(space, job_stack(engine, soak.JOB, "ours"), seed=2, rounds=soak.ROUNDS)

    assert len(found["faults"]) == soak.ROUNDS
