"""One whole life in one test, for a check that has minutes: create, train, grow, lose a node, replace, destroy."""

from __future__ import annotations

import pytest

from tests.cluster import jobs
from tests.cluster.cluster import Namespace
from tests.cluster.stack import JobStack
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB = "life"


def is_replaced(before: dict[str, str], now: dict[str, str]) -> bool:
    """The same names, one of them a new pod."""
    return before.keys() == now.keys() and len(before.items() - now.items()) == 1


def test_a_job_lives_through_everything(space: Namespace, stack: JobStack) -> None:
    """After all faults the weights at the end are those of an undisturbed run."""
    training = jobs.Training()
    old, new = space.cluster.images
    stack.up(jobs.config(space, training, image=old))
    jobs.await_world(space, 2)
    space.scale(JOB, 3)
    jobs.await_world(space, 3)
    before = space.uids(JOB)
    space.api.delete(space.pod(f"{JOB}-worker-1"), grace=0)
    until("a pod in its place", lambda: is_replaced(before, space.uids(JOB)), describe=space.describe)
    jobs.await_world(space, 3, after=jobs.last_step(space))
    stack.up(jobs.config(space, training, image=new))
    jobs.await_image(space, new)
    jobs.finish(space, JOB, training)
    stack.destroy()

    until("an empty namespace", lambda: not space.pods(JOB), describe=space.describe)
    assert space.api.find(space.job(JOB)) is None
