"""A cluster node on which workers fail again and again, on the real API server and the real scheduler."""

from __future__ import annotations

import signal

import pytest

from tests.cluster import faults, jobs, kube
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.targets import Target
from tests.cluster.test_capacity import may
from tests.cluster.testbed.kwok import TOLERATION, Nodes
from tests.cluster.testbed.layout import NODE_NAME
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB = "careful"


def second(space: Namespace, target: Target) -> kube.Object:
    """The newest pod of the second node."""
    found = space.api.list("v1", "Pod", space.name, f"{target.index}=1")
    return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def holders(space: Namespace) -> list[kube.Object]:
    """The pods that keep the job's pods away from a cluster node."""
    return space.api.list("v1", "Pod", space.name, f"elastic-infra/avoid={JOB}")


def is_kept_away(space: Namespace, target: Target) -> bool:
    """Whether the scheduler refuses the only cluster node for what the pod is to avoid."""
    conditions = second(space, target)["status"].get("conditions", ())
    return any("anti-affinity" in each.get("message", "") for each in conditions)


def test_the_replacement_goes_elsewhere_until_the_job_ends(nodes: Nodes, space: Namespace, target: Target) -> None:
    """It waits while there is no other cluster node, goes to the one that comes, and nothing is held after the end.

    The job trains on meanwhile, and after it: nothing runs in a pod on a cluster node without a machine.
    """
    two = {"nnodes": "1:2", "nproc_per_node": 1}
    avoid = {"avoid_bad_nodes": True, "tolerations": [TOLERATION]}
    settings = jobs.config(space, jobs.Training(), target=target.name, elastic=two, placement=avoid)
    jobs.submit(space, JOB, settings, "ours")
    for _ in range(2):
        jobs.await_world(space, 2, after=jobs.last_step(space))
        faults.signal_worker(space, second(space, target)["metadata"]["name"], signal.SIGKILL)
        jobs.await_step(space, jobs.last_step(space) + 2)
    until("the replacement to be kept away", lambda: is_kept_away(space, target), describe=space.describe)
    held = [pod["spec"]["nodeName"] for pod in holders(space)]
    jobs.await_world(space, 1, after=jobs.last_step(space))
    kept_away = second(space, target)["metadata"]["uid"]
    nodes.add("elsewhere", {})
    until("the replacement", lambda: is_ready(second(space, target)), describe=space.describe)
    replacement = second(space, target)
    jobs.await_step(space, jobs.last_step(space) + 2)
    jobs.tell_to_finish(space)
    until("the end", lambda: not holders(space), describe=space.describe)
    user = f"system:serviceaccount:{space.name}:{JOB}-driver"
    rights = [
        ("list", "", "pods", ""),
        ("create", "", "pods", ""),
        ("delete", "", "pods", f"{JOB}-avoid-0"),
    ]
    more = [("delete", "", "pods", f"{JOB}-0"), ("get", "", "secrets", ""), ("create", "", "pods/exec", "")]

    assert held == [NODE_NAME]
    assert (replacement["metadata"]["uid"], replacement["spec"]["nodeName"]) == (kept_away, "elsewhere")
    assert [each for each in (*rights, *more) if may(space, user, *each)] == rights
