"""What the driver reads of the API server's objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.config import values
from elastic_infra.launcher.driver import observation
from elastic_infra.launcher.driver.observation import could_take, hold, observe, quantity, requests
from elastic_infra.manifests.metadata import COMPLETION_INDEX, ELASTIC_QUEUE, MIN_NODES, OPERATOR_REPLICA_INDEX, QUEUE

Object = dict[str, Any]
OURS = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}


def pod(uid: str, amounts: Object, *, node: str | None = "a", ready: bool = True, **more: Any) -> Object:
    """A pod as the API server has it; `more` are parts of its metadata, spec and status."""
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"uid": uid, "labels": {}, **more.get("metadata", {})},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": amounts}}],
            **({"nodeName": node} if node else {}),
            **more.get("spec", {}),
        },
        "status": {"phase": "Running" if node else "Pending", "conditions": [condition], **more.get("status", {})},
    }


def node(number: int, **more: Any) -> Object:
    """A pod of the job."""
    labels = {COMPLETION_INDEX: str(number), "team": "research"}
    return pod(f"node-{number}", OURS, metadata={"labels": labels, **more.pop("metadata", {})}, **more)


def stuck(amounts: Object, lacks: str = "cpu", **more: Any) -> Object:
    """A pod for which the scheduler finds no room."""
    message = f"0/5 nodes are available: 5 Insufficient {lacks}. preemption: ..."
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod("other", amounts, node=None, status={"conditions": [said], **more.pop("status", {})}, **more)


def job(nodes: int, **more: Any) -> Object:
    """A job of several nodes that needs no operator."""
    return {"metadata": {"labels": {}}, "spec": {"parallelism": nodes, "completions": nodes}, **more}


def test_a_job_that_trains_is_settled() -> None:
    """Pods that have ended, of earlier tries, are not seen."""
    own = [node(0), node(1), node(1, status={"phase": "Failed"})]
    seen = observe(job(2), own, [], [])

    assert (seen.size, seen.placed, seen.is_settled, seen.spare) == (2, frozenset({0, 1}), True, 2)


@pytest.mark.parametrize(
    "late",
    [
        node(1, ready=False),
        node(1, metadata={"deletionTimestamp": "now"}),
        node(2, metadata={"deletionTimestamp": "now"}),
    ],
)
def test_a_pod_that_starts_or_ends_unsettles_the_job(late: Object) -> None:
    """Also one beyond the size, which has yet to free its room."""
    assert not observe(job(2), [node(0), late], [], []).is_settled


def test_a_pod_without_a_place_is_missing() -> None:
    """Its own pending pods are no others'."""
    own = [node(0), node(1, node=None, status={"phase": "Pending"})]

    seen = observe(job(3), own, own, [])

    assert (seen.placed, seen.is_settled, seen.waiting) == (frozenset({0}), True, frozenset())


def test_an_operators_pods_have_their_index() -> None:
    """The operator counts in a label of its own."""
    own = [pod("a", OURS, metadata={"labels": {OPERATOR_REPLICA_INDEX: "0"}})]
    workload = {"metadata": {}, "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}

    seen = observe(workload, own, [], [])

    assert (seen.size, seen.placed) == (2, frozenset({0}))


@pytest.mark.parametrize(
    ("other", "could"),
    [
        (stuck({"cpu": "4", "memory": "1Gi"}), True),
        (stuck({"nvidia.com/gpu": "1"}, "nvidia.com/gpu", spec={"priority": 5}), True),
        (stuck({"cpu": "4001m"}), False),
        (stuck({"cpu": "1", "amd.com/gpu": "1"}), False),
        (stuck({"cpu": "1"}, "amd.com/gpu"), False),
        (stuck({"cpu": "1"}, spec={"priority": -1}), False),
        (stuck({"cpu": "1"}, status={"nominatedNodeName": "b"}), False),
        (stuck({"cpu": "1"}, spec={"nodeName": "b"}), False),
        (stuck({"cpu": "1"}, metadata={"deletionTimestamp": "now"}), False),
        (stuck({"cpu": "1"}, spec={"nodeSelector": {"zone": "b"}}), False),
        (stuck({"cpu": "1"}, spec={"nodeSelector": {"zone": "a", "disk": "ssd"}}), True),
        (pod("other", {"cpu": "1"}, node=None), False),
    ],
)
def test_a_pod_could_take_the_place_of_a_node(other: Object, could: bool) -> None:
    """It waits for what a node has and fits in there; it comes first by its priority; nothing else keeps it away."""
    ours = node(0, spec={"nodeSelector": {"zone": "a"}})

    assert could_take(other, ours) is could
    assert observe(job(1), [ours], [other], []).waiting == ({"other"} if could else set())


@pytest.mark.parametrize(("index", "could"), [("1", True), ("2", False)])
def test_no_job_makes_room_for_the_growth_of_another(index: str, could: bool) -> None:
    """Only for the nodes of its minimum: two jobs would take nodes from each other for ever."""
    metadata = {"labels": {COMPLETION_INDEX: index}, "annotations": {MIN_NODES: "2"}}

    assert could_take(stuck({"cpu": "1"}, metadata=metadata), node(0)) is could


@pytest.mark.parametrize(
    ("selector", "spare"),
    [({"matchLabels": {"team": "research"}}, 1), ({"matchLabels": {"team": "other"}}, 3), ({}, 1), (None, 3)],
)
def test_a_disruption_budget_of_its_pods_bounds_what_it_gives(selector: Object | None, spare: int) -> None:
    """Whoever made the budget; one that selects nothing, or others, does not count."""
    budgets = [{"spec": {"selector": selector}, "status": {"disruptionsAllowed": 1}}]

    assert observe(job(3), [node(each) for each in range(3)], [], budgets).spare == spare


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (job(2), ""),
        (job(2, status={"conditions": [{"type": "Failed", "status": "False"}]}), ""),
        (job(2, status={"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}), "ended"),
        (job(2, metadata={"labels": {QUEUE: "gpu"}}), "Kueue"),
        (job(2, metadata={"labels": {QUEUE: "gpu"}, "annotations": {ELASTIC_QUEUE: "true"}}), ""),
        (job(2, spec={"suspend": True}), "suspended"),
        ({"metadata": {}, "spec": {"runPolicy": {"suspend": True}}}, "suspended"),
    ],
)
def test_a_size_that_is_not_the_drivers_is_left_alone(workload: Object, why: str) -> None:
    """The reason is said: the job has ended, is suspended, or Kueue counts its nodes."""
    assert why in hold(workload)
    assert bool(hold(workload)) is bool(why)


def test_a_pod_asks_for_its_containers_and_the_largest_init_container() -> None:
    """A sidecar stays, so that it counts as a container does."""
    amounts: list[Object] = [{"cpu": "1"}, {"cpu": "500m"}, {"cpu": "3"}, {"cpu": "250m", "memory": "1Mi"}]
    first, second, init, sidecar = ({"name": str(i), "resources": {"requests": a}} for i, a in enumerate(amounts))
    spec = {
        "containers": [first, second],
        "initContainers": [{**sidecar, "restartPolicy": "Always"}, init, {"name": "x"}],
    }

    assert requests(spec) == {"cpu": 3.0, "memory": 2**20}
    assert requests({**spec, "initContainers": [{**sidecar, "restartPolicy": "Always"}]})["cpu"] == 1.75


@given(st.from_regex(r"[0-9]{1,6}(\.[0-9]{1,3})?([mkMGTPE]|[KMGTPE]i)?", fullmatch=True))
def test_a_quantity_is_read_as_the_config_reads_it(text: str) -> None:
    """The launcher has a reader of its own, since it knows nothing of the config."""
    assert quantity(text) == pytest.approx(float(values.quantity(text)))


def test_what_is_no_quantity_fits_nowhere() -> None:
    """A pod that cannot be read costs no node."""
    assert quantity("much") == float("inf")


def test_the_annotation_is_the_one_that_pods_have() -> None:
    """The launcher and the manifests each have their own constant, because neither knows the other."""
    assert observation.MIN_NODES == MIN_NODES
    assert (observation.QUEUE, observation.ELASTIC) == (QUEUE, ELASTIC_QUEUE)
    assert set(observation.INDICES) == {OPERATOR_REPLICA_INDEX, COMPLETION_INDEX}
