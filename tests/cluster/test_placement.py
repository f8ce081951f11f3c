"""Where the real scheduler places the pods of a job: in one domain, apart, and on spot nodes.

The cluster nodes have no machine, and the pods' containers do nothing: only the scheduler's choice is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
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
WORKERS = "app.kubernetes.io/instance={},app.kubernetes.io/component=worker"
STORE = f"app.kubernetes.io/instance={JOB},app.kubernetes.io/component=rendezvous"
NOWHERE = ""
DEVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "nvidia": ("nvidia.com/gpu", {"gpu": 1}),
    "mig": ("nvidia.com/mig-1g.10gb", {"gpu": {"count": 1, "resource": "nvidia.com/mig-1g.10gb"}}),
    "amd": ("amd.com/gpu", {"gpu": {"count": 1, "vendor": "amd"}}),
    "intel": ("gpu.intel.com/i915", {"gpu": {"count": 1, "vendor": "intel"}}),
    "google": ("google.com/tpu", {"gpu": {"count": 1, "vendor": "google"}}),
    "neuron": ("aws.amazon.com/neuron", {"gpu": {"count": 1, "vendor": "neuron"}}),
    "pages": ("hugepages-2Mi", {"hugepages": {"amount": "64Mi"}}),
}
"""What a cluster node has one of, or 64 MiB, by its name; and how a job asks for that."""
CLAIMS = "resource.k8s.io/v1"
DRIVER = "gpu.tests.elastic-infra"


def objects(
    space: Namespace, name: str, target: str, count: int, resources: Mapping[str, Any], **changes: Any
) -> list[kube.Object]:
    """Those of a job of so many nodes that may run where there is no machine."""
    settings = jobs.config(
        space,
        jobs.Training(),
        target=target,
        elastic={"nnodes": f"1:{count}", "initial_nodes": count, "nproc_per_node": 1},
        resources={"cpu": "50m", "memory": "200Mi", **resources},
        **changes,
    )
    settings["placement"] = {"tolerations": [TOLERATION], **settings.get("placement", {})}
    return jobs.objects(name, settings, "idle")


def judged(space: Namespace, name: str, count: int) -> list[kube.Object]:
    """The job's pods, once the scheduler has found a place for each or said why not."""
    picked = WORKERS.format(name)

    def found() -> list[kube.Object]:
        pods = space.api.list("v1", "Pod", space.name, picked)
        return pods if len(pods) == count and all(place(pod) or why_not(pod) for pod in pods) else []

    return until(f"all pods of {name} to be judged", found, describe=space.describe)


@contextmanager
def scheduled(
    space: Namespace,
    target: str,
    count: int,
    host: str = "worker0",
    resources: Mapping[str, Any] = {"gpu": REQUEST},
    **placement: Any,
) -> Iterator[list[kube.Object]]:
    """The pods of a job of so many nodes, once all are judged; they are gone afterwards."""
    made = objects(space, JOB, target, count, resources, rendezvous={"host": host}, placement=placement)
    for each in made:
        space.apply(each)
    yield judged(space, JOB, count)
    for each in made:
        space.api.delete(each)
    picked = WORKERS.format(JOB)
    until("no pods", lambda: not space.api.list("v1", "Pod", space.name, picked), describe=space.describe)


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


@pytest.mark.parametrize("target", ["job", "pytorchjob"])
def test_pods_are_placed_together_or_apart(nodes: Nodes, space: Namespace, target: str) -> None:
    """In one zone and there on two hosts; a full zone is left, or waited for; and zones have equal shares."""
    for host in ("east-1", "east-2", "west-1", "west-2"):
        nodes.add(host, {SLOT: "2"}, labels={ZONE: host.partition("-")[0]})
    pack = {"topology_key": ZONE}
    with scheduled(space, target, 2, topology_pack=pack, topology_spread=[{"topology_key": HOST}]) as pods:
        two = zones(pods), len({place(pod) for pod in pods})
    with scheduled(space, target, 5, topology_pack=pack) as pods:
        preferred = zones(pods)
    with scheduled(space, target, 5, topology_pack={**pack, "required": True}) as pods:
        required, waits = zones(pods), refusals(pods)
    nodes.cordon("west-1")
    apart = {"topology_key": ZONE, "when_unsatisfiable": "DoNotSchedule"}
    with scheduled(space, target, 6, topology_spread=[apart]) as pods:
        spread, left = zones(pods), refusals(pods)

    assert two == ([2], 2)
    assert preferred == [1, 4]
    assert (required, len(waits)) == ([4], 1)
    assert "pod affinity" in waits[0]
    assert (spread, len(left)) == ([2, 3], 1)  # and one slot is free
    assert "topology spread" in left[0]


@pytest.mark.parametrize("target", ["job", "pytorchjob"])
def test_spot_nodes_take_the_pods_that_train_and_not_the_store(nodes: Nodes, space: Namespace, target: str) -> None:
    """Their taints keep other jobs away, and each word of `spot` draws as far as the documentation says."""
    for key in SPOT_TAINTS:
        name, value = key.partition(".")[2].replace("/", "-"), SPOT_LABELS[key]
        taint = {"key": key, "value": value, "effect": "NoSchedule"}
        nodes.add(name, {SLOT: "1"}, labels={key: value}, taint=taint)
    spot = sorted(nodes.names)
    nodes.add("kept", {SLOT: "2"})

    with scheduled(space, target, 3) as pods:
        without, untold = sorted(map(place, pods)), refusals(pods)
    with scheduled(space, target, 4, spot="allowed") as pods:
        allowed = sorted(map(place, pods))
    with scheduled(space, target, 2, spot="preferred") as pods:
        preferred = sorted(map(place, pods))
    with scheduled(space, target, 3, "dedicated", spot="required") as pods:
        required, refused = sorted(map(place, pods)), refusals(pods)
        store = until("the store", lambda: [*filter(None, map(place, space.api.list("v1", "Pod", space.name, STORE)))])

    assert without == [NOWHERE, "kept", "kept"]
    assert "untolerated taint" in untold[0]
    assert allowed == sorted([*spot, "kept", "kept"])
    assert preferred == spot
    assert required == [NOWHERE, *spot]
    assert "node affinity" in refused[0]
    assert store == [NODE_NAME]


def test_devices_lead_pods_to_the_nodes_that_have_them(nodes: Nodes, space: Namespace) -> None:
    """Of each kind there is one: one pod of the job has it, and the other waits though all other nodes have room."""
    for name, (device, _) in DEVICES.items():
        nodes.add(name, {device: "64Mi" if name == "pages" else "1"})
    for name, (_, resources) in DEVICES.items():
        for each in objects(space, name, "job", 2, resources, **jobs.CONTROL):
            space.apply(each)
    pods = {name: judged(space, name, 2) for name in DEVICES}

    assert {name: sorted(map(place, pods[name])) for name in DEVICES} == {name: [NOWHERE, name] for name in DEVICES}
    for name, (device, _) in DEVICES.items():
        assert f"Insufficient {device}" in refusals(pods[name])[0]


@pytest.fixture
def devices(api: kube.Kube, nodes: Nodes) -> Iterator[list[str]]:
    """Two devices of a class, which a driver that is not there offers on a cluster node without a machine."""
    name, names = {"apiVersion": CLAIMS, "metadata": {"name": "claimed"}}, ["gpu-0", "gpu-1"]
    nodes.add("claimed", {})
    nodes.add("other", {})
    offered = {
        "driver": DRIVER,
        "nodeName": "claimed",
        "pool": {"name": "claimed", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": each} for each in names],
    }
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    made = [
        {**name, "kind": "DeviceClass", "spec": {"selectors": [selector]}},
        {**name, "kind": "ResourceSlice", "spec": offered},
    ]
    for each in made:
        api.apply(each)
    yield names
    for each in made:
        api.delete(each)


def test_a_claim_of_each_pod_is_allocated(devices: list[str], space: Namespace) -> None:
    """Two pods have each a device by a claim of their own, on the node that has them, and a third waits for one."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "claimed"}}
    template = {"apiVersion": CLAIMS, "kind": "ResourceClaimTemplate", "metadata": {"name": "one-gpu"}}
    space.apply({**template, "spec": {"spec": {"devices": {"requests": [request]}}}})
    claims = {"claims": [{"name": "gpus", "template": "one-gpu"}]}
    with scheduled(space, "job", 3, resources=claims) as pods:
        found = space.api.list(CLAIMS, "ResourceClaim", space.name)
    allocated = {
        claim["status"]["reservedFor"][0]["uid"]: claim["status"]["allocation"]["devices"]["results"][0]["device"]
        for claim in found
        if "allocation" in claim.get("status", {})
    }

    assert sorted(map(place, pods)) == [NOWHERE, "claimed", "claimed"]
    assert "cannot allocate all claims" in refusals(pods)[0]
    assert allocated.keys() == {pod["metadata"]["uid"] for pod in pods if place(pod)}
    assert (sorted(allocated.values()), len(found)) == (devices, 3)
