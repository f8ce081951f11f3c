"""Gangs on the real coscheduling of scheduler-plugins: the minimum of nodes at once, those beyond it one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import jobs, kube
from tests.cluster.cluster import Cluster, Namespace
from tests.cluster.slots import REQUEST, Slots
from tests.cluster.targets import Target
from tests.cluster.test_indexed_job import JOB, await_end, lose, uids
from tests.cluster.testbed import coscheduling, programs
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
LOOK_SECONDS = 10
"""Twice as long as pods of a gang hold room for the others."""


@pytest.fixture(scope="module")
def scheduler(cluster: Cluster, api: kube.Kube) -> Iterator[None]:
    """The second scheduler; skips where it is not built, or the cluster is not the testbed."""
    if cluster.testbed is None:
        pytest.skip("only the testbed's node can be given slots")
    try:
        programs.built(coscheduling.PROGRAM)
    except programs.MissingProgramError as error:
        pytest.skip(f"no coscheduling: {error}")
    with coscheduling.running(cluster.testbed, api):
        yield


def settings(space: Namespace, target: str = "job", **gang: Any) -> dict[str, Any]:
    """The config of a gang of two in a job of two to three nodes."""
    own = jobs.config(space, jobs.Training(), target=target, elastic={"nnodes": "2:3", "nproc_per_node": 1})
    runtime = {**own["runtime"], "startup_wait_seconds": 0}
    return {**own, "resources": {**own["resources"], "gpu": REQUEST}, "runtime": runtime, "placement": gang}


def pods(space: Namespace) -> list[kube.Object]:
    """The job's pods, those that wait included."""
    picked = f"app.kubernetes.io/instance={JOB},app.kubernetes.io/component=worker"
    return space.api.list("v1", "Pod", space.name, picked)


def bound(space: Namespace) -> int:
    """How many of the job's pods have a cluster node."""
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods(space))


def refused(space: Namespace) -> int:
    """How many of them the scheduler has judged, and found no place for."""
    told = [pod["status"].get("conditions", ()) for pod in pods(space)]
    return sum(("PodScheduled", "False") in {(each["type"], each["status"]) for each in own} for own in told)


@pytest.mark.usefixtures("scheduler")
def test_the_minimum_comes_at_once_and_the_rest_as_there_is_room(space: Namespace, slots: Slots) -> None:
    """With one slot no pod holds it; with two both come and train; a third node joins, and a lost one is replaced."""
    slots(1)
    jobs.submit(space, JOB, settings(space, gang={"scheduler": "coscheduling"}), "ours")
    until("three pods", lambda: len(pods(space)) == 3, describe=space.describe)
    ends, held = time.monotonic() + LOOK_SECONDS, 0
    while time.monotonic() < ends:
        held = max(held, bound(space))
        time.sleep(0.5)
    slots(2)
    jobs.await_world(space, 2)
    slots(3)
    jobs.await_world(space, 3, after=jobs.last_step(space))
    lose(space, max(uids(space)))
    jobs.tell_to_finish(space)
    await_end(space, "Complete")
    group = space.api.get(space.named("scheduling.x-k8s.io/v1alpha1", "PodGroup", f"{JOB}-gang"))

    assert held == 0
    assert group["spec"] == {"minMember": 2}
    jobs.check_result(space, jobs.Training())


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("target", ["pytorchjob", "trainjob"], indirect=True)
def test_every_workload_object_has_its_minimum_at_once(space: Namespace, slots: Slots, target: Target) -> None:
    """With one slot the scheduler refuses all three pods of a PyTorchJob and of a TrainJob; with two it places two."""
    slots(1)
    jobs.submit(space, JOB, settings(space, target.name, gang={"scheduler": "coscheduling"}), "idle")
    until("three pods without a place", lambda: refused(space) == 3, describe=space.describe)
    held = bound(space)
    slots(2)
    until("two pods that are placed", lambda: bound(space) == 2, describe=space.describe)

    assert held == 0
    assert refused(space) == 1


def test_without_a_gang_a_pod_holds_room_that_it_cannot_use(space: Namespace, slots: Slots) -> None:
    """The control: the cluster's own scheduler places one of the two, which waits for the other."""
    slots(1)
    jobs.submit(space, JOB, settings(space), "ours")

    until("a pod that holds the slot", lambda: bound(space) == 1, describe=space.describe)
