"""Where the real scheduler places the pods of a job: in one domain, apart, and on spot nodes.

The cluster nodes have no machine, and the pods' containers do nothing: only the scheduler's choice is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elastic_infra.config.placement import SPOT_LABELS, SPOT_TAINTS
from tests.cluster import jobs, kube
from tests.cluster.cluster import Namespace
from tests.cluster.slots import REQUEST, SLOT
from tests.cluster.testbed.kwok import TOLERATION, Nodes
from tests.cluster.testbed.layout import NODE_NAME
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOB = "placed"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WORKERS = f"app.kubernetes.io/instance={JOB},app.kubernetes.io/component=worker"
STORE = f"app.kubernetes.io/instance={JOB},app.kubernetes.io/component=rendezvous"
NOWHERE = ""


@contextmanager
def scheduled(space: Namespace, count: int, host: str = "worker0", **placement: Any) -> Iterator[list[kube.Object]]:
    """The pods of a job of so many nodes, each of which takes a slot, once all are judged; they are gone afterwards."""
    settings = jobs.config(
        space,
        jobs.Training(),
        target="job",
        elastic={"nnodes": f"1:{count}", "initial_nodes": count, "nproc_per_node": 1},
        resources={"cpu": "50m", "memory": "200Mi", "gpu": REQUEST},
        rendezvous={"host": host},
        placement={"tolerations": [TOLERATION], **placement},
    )
    objects = jobs.objects(JOB, settings, "idle")
    for each in objects:
        space.apply(each)

    def judged() -> list[kube.Object]:
        found = space.api.list("v1", "Pod", space.name, WORKERS)
        return found if len(found) == count and all(place(pod) or why_not(pod) for pod in found) else []

    yield until("all pods to be judged", judged, describe=space.describe)
    for each in objects:
        space.api.delete(each)
    until("no pods", lambda: not space.api.list("v1", "Pod", space.name, WORKERS), describe=space.describe)


def place(pod: kube.Object) -> str:
    """The cluster node that the scheduler has chosen."""
    return str(pod["spec"].get("nodeName", NOWHERE))


def why_not(pod: kube.Object) -> str:
    """What the scheduler says where it has found none."""
    told = (each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled")
    return next((str(each.get("message", "")) for each in told if each["status"] == "False"), "")


def zones(pods: list[kube.Object]) -> list[int]:
    """How many pods each zone has, the fewest first."""
    return sorted(Counter(place(pod).partition("-")[0] for pod in pods if place(pod)).values())


def refusals(pods: list[kube.Object]) -> list[str]:
    """What is said of the pods without a place."""
    return [why_not(pod) for pod in pods if not place(pod)]


def test_pods_are_placed_together_or_apart(nodes: Nodes, space: Namespace) -> None:
    """In one zone and there on two hosts; a full zone is left, or waited for; and zones have equal shares."""
    for host in ("east-1", "east-2", "west-1", "west-2"):
        nodes.add(host, {SLOT: "2"}, labels={ZONE: host.partition("-")[0]})
    pack = {"topology_key": ZONE}
    with scheduled(space, 2, topology_pack=pack, topology_spread=[{"topology_key": HOST}]) as pods:
        two = zones(pods), len({place(pod) for pod in pods})
    with scheduled(space, 5, topology_pack=pack) as pods:
        preferred = zones(pods)
    with scheduled(space, 5, topology_pack={**pack, "required": True}) as pods:
        required, waits = zones(pods), refusals(pods)
    nodes.cordon("west-1")
    apart = {"topology_key": ZONE, "when_unsatisfiable": "DoNotSchedule"}
    with scheduled(space, 6, topology_spread=[apart]) as pods:
        spread, left = zones(pods), refusals(pods)

    assert two == ([2], 2)
    assert preferred == [1, 4]
    assert (required, len(waits)) == ([4], 1)
    assert "pod affinity" in waits[0]
    assert (spread, len(left)) == ([2, 3], 1)  # and one slot is free
    assert "topology spread" in left[0]


def test_spot_nodes_take_the_pods_that_train_and_not_the_store(nodes: Nodes, space: Namespace) -> None:
    """Their taints keep other jobs away, and each word of `spot` draws as far as the documentation says."""
    for key in SPOT_TAINTS:
        name, value = key.partition(".")[2].replace("/", "-"), SPOT_LABELS[key]
        taint = {"key": key, "value": value, "effect": "NoSchedule"}
        nodes.add(name, {SLOT: "1"}, labels={key: value}, taint=taint)
    spot = sorted(nodes.names)
    nodes.add("kept", {SLOT: "2"})

    with scheduled(space, 3) as pods:
        without, untold = sorted(map(place, pods)), refusals(pods)
    with scheduled(space, 4, spot="allowed") as pods:
        allowed = sorted(map(place, pods))
    with scheduled(space, 2, spot="preferred") as pods:
        preferred = sorted(map(place, pods))
    with scheduled(space, 3, "dedicated", spot="required") as pods:
        required, refused = sorted(map(place, pods)), refusals(pods)
        store = until("the store", lambda: [*filter(None, map(place, space.api.list("v1", "Pod", space.name, STORE)))])

    assert without == [NOWHERE, "kept", "kept"]
    assert "untolerated taint" in untold[0]
    assert allowed == sorted([*spot, "kept", "kept"])
    assert preferred == spot
    assert required == [NOWHERE, *spot]
    assert "node affinity" in refused[0]
    assert store == [NODE_NAME]
