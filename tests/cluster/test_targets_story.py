"""The same life of a job on all three workload objects, while the cluster's network enforces NetworkPolicies."""

from __future__ import annotations

import pytest

from tests.cluster import jobs
from tests.cluster.cluster import Namespace, restarts
from tests.cluster.story import EVENTS, Life
from tests.cluster.targets import MOST, Target
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.mark.usefixtures("enforced")
def test_a_job_lives_the_same_life_on_every_target(space: Namespace, target: Target) -> None:
    """Starts, grows, loses a node and its store, is preempted, and ends with the weights of an undisturbed run.

    No container is started twice.
    """
    life = Life(space, target, "life", jobs.Training(), {})

    *events, finish = EVENTS.values()

    for event in events:
        event(life)
    started_again = [restarts(pod) for pod in target.nodes(space, life.job).values()]
    finish(life)

    assert started_again == [0] * MOST
    jobs.check_result(space, life.training)
    until("no nodes", lambda: not target.nodes(space, life.job), describe=space.describe)
