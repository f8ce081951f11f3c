"""Growth into idle capacity on the real API server and the real scheduler.

Each node of a job takes a made-up device. The testbed's own node has more or less of it as a test says, where nodes
train; and cluster nodes without a machine come with it and go, as those do that an autoscaler buys.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from elastic_infra.launcher.driver.capacity import FIXED
from tests.cluster import faults, jobs, kube
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.slots import REQUEST, SLOT, Slots
from tests.cluster.stack import JobStack, job_stack
from tests.cluster.testbed.kwok import TOLERATION, Nodes
from tests.cluster.testbed.layout import NODE_NAME
from tests.cluster.waiting import until
from tests.engine.engine import Engine

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB = "idle"
PROBE_SECONDS = 6
LOOK_STEPS = 40
"""Of the toy: they take longer than a pod has to wait before a node is given up for it."""
STORE = "app.kubernetes.io/component=rendezvous"
LABELS = {
    "job": "app.kubernetes.io/component=worker",
    "pytorchjob": f"training.kubeflow.org/job-name={JOB}",
    "trainjob": "app.kubernetes.io/component=worker",
}


@pytest.fixture
def training(engine: Engine) -> JobStack:
    """A stack whose job trains."""
    return job_stack(engine, JOB, "ours")


@pytest.fixture
def idle(engine: Engine) -> JobStack:
    """A stack whose job has pods that do nothing."""
    return job_stack(engine, JOB, "idle")


def config(space: Namespace, target: str, **changes: Any) -> dict[str, Any]:
    """A job of one to three nodes, each with a device."""
    return jobs.config(
        space,
        jobs.Training(),
        target=target,
        **{
            "elastic": {"nnodes": "1:3", "nproc_per_node": 1},
            "autoscaling": {"policy": "capacity", "probe_seconds": PROBE_SECONDS},
            "resources": {"cpu": "200m", "memory": "1200Mi", "gpu": REQUEST},
            **changes,
        },
    )


def pods(space: Namespace, target: str) -> list[kube.Object]:
    """The job's pods that are not on their way out."""
    found = space.api.list("v1", "Pod", space.name, LABELS[target])
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"]


def uids(space: Namespace, target: str) -> set[str]:
    """Identity of the pods that train."""
    return {pod["metadata"]["uid"] for pod in pods(space, target) if is_ready(pod)}


def size(space: Namespace, target: str) -> int:
    """The number of nodes that the job asks for now."""
    if target in {"job", "trainjob"}:
        name = JOB if target == "job" else f"{JOB}-node-0"
        return int(space.api.get(space.named("batch/v1", "Job", name))["spec"]["completions"])
    return int(space.api.get(space.job(JOB))["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])


def said(space: Namespace) -> list[str]:
    """What the driver has written; nothing before it runs."""
    found = space.api.list("v1", "Pod", space.name, f"app.kubernetes.io/instance={JOB},{STORE}")
    logs = [f"{space.api.path(pod)}/log?container=driver" for pod in found if is_ready(pod)]
    return [line for log in logs for line in space.api.request("GET", log).splitlines()]


def describe(space: Namespace) -> str:
    """The namespace, and what the driver says."""
    return "\n".join([space.describe(), *said(space)])


def await_nodes(space: Namespace, target: str, count: int) -> None:
    """Returns once exactly so many nodes run, and the job asks for no more."""

    def settled() -> bool:
        return len(uids(space, target)) == len(pods(space, target)) == size(space, target) == count

    until(f"{count} nodes", settled, describe=lambda: describe(space))


def await_said(space: Namespace, line: str) -> None:
    """Returns once the driver has written a line."""
    until(line, lambda: f"capacity: {line}" in said(space), describe=lambda: describe(space))


def waiting_pod(space: Namespace, name: str) -> kube.Object:
    """A pod of somebody else that wants a device."""
    amounts = {"cpu": "50m", "memory": "50Mi", SLOT: "1"}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "main",
        "image": space.cluster.images[0],
        "command": ["sleep", "infinity"],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": security,
    }
    user = {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": user, "terminationGracePeriodSeconds": 0}
    return {**space.pod(name), "spec": spec}


def test_a_job_follows_the_room_in_the_cluster(space: Namespace, training: JobStack, slots: Slots, humble: str) -> None:
    """It takes what is idle, gives back what another pod waits for, and trains on with the exact weights.

    A pod that finds no place, of the job or of lower priority, changes nothing for the nodes that train, and `up`
    leaves the size alone.
    """
    target, settings = "job", config(space, "job")
    slots(2)
    training.up(settings)
    jobs.await_world(space, 2)
    grown = uids(space, target)
    lesser = space.apply(with_priority(waiting_pod(space, "lesser"), humble))
    await_said(space, "size 3 to 2: there is no room for more")
    jobs.await_step(space, jobs.last_step(space) + LOOK_STEPS)
    unmoved, ignored = uids(space, target), "nodeName" not in space.api.get(lesser)["spec"]
    space.api.delete(lesser)

    slots(3)
    jobs.await_world(space, 3, after=jobs.last_step(space))
    left_alone = training.up(settings), size(space, target)
    assert_rights(space, target)
    other = space.apply(waiting_pod(space, "other"))
    until("the other pod", lambda: is_ready(space.api.get(other)), describe=lambda: describe(space))
    jobs.await_world(space, 2, after=jobs.last_step(space))
    kept = uids(space, target)
    space.api.delete(other)
    jobs.await_world(space, 3, after=jobs.last_step(space))
    jobs.tell_to_finish(space)
    await_said(space, "leaves the size alone: the job has ended")

    assert ignored
    assert unmoved == grown == kept
    assert left_alone == ({}, 3)
    jobs.check_result(space, jobs.Training())


def test_an_operators_job_makes_room_unless_a_budget_keeps_its_nodes(
    space: Namespace, idle: JobStack, slots: Slots
) -> None:
    """It is resized through its scale. One waiting pod costs one node, and none at the minimum."""
    target, settings = "pytorchjob", config(space, "pytorchjob")
    budget = budget_of(space)
    slots(2)
    idle.up(settings)
    await_said(space, "size 3 to 2: there is no room for more")
    await_nodes(space, target, 2)

    space.apply(budget)
    other = space.apply(waiting_pod(space, "other"))
    await_said(space, "size 2: a PodDisruptionBudget keeps its nodes from a pod that waits for room")
    space.api.delete(budget)
    until("the other pod", lambda: is_ready(space.api.get(other)), describe=lambda: describe(space))
    await_nodes(space, target, 1)
    space.apply(waiting_pod(space, "third"))
    await_said(space, "size 2 to 1: there is no room for more")
    again = idle.up(settings)

    assert [line for line in said(space) if "makes room" in line] == [
        "capacity: size 2 to 1: makes room for another pod"
    ]
    assert (again, size(space, target)) == ({}, 1)


def test_a_job_follows_cluster_nodes_that_come_and_go(
    nodes: Nodes, slots: Slots, space: Namespace, urgent: str
) -> None:
    """It grows into each that comes, is smaller where one is drained, and gives one to a pod of higher priority.

    The node that trains is left alone by all of it. A pod without a machine trains nothing, but has a place.
    """
    slots(1)
    quick = {"policy": "capacity", "probe_seconds": 4}
    settings = config(space, "job", autoscaling=quick, placement={"tolerations": [TOLERATION]})
    jobs.submit(space, JOB, settings, "ours")
    jobs.await_world(space, 1)
    first = placed(space)
    nodes.add("one", {SLOT: "1"})
    until("a pod on one", lambda: "one" in placed(space), describe=lambda: describe(space))
    nodes.add("two", {SLOT: "1"})
    until("a pod on two", lambda: "two" in placed(space), describe=lambda: describe(space))
    grown, largest = placed(space), size(space, "job")

    nodes.cordon("two")
    faults.evict(space, grown["two"]["metadata"]["name"])
    await_nodes(space, "job", 2)
    nodes.remove("two")
    drained, step = placed(space), jobs.last_step(space)
    other = space.apply(with_priority(waiting_pod(space, "other"), urgent))
    until("the other pod", lambda: is_ready(space.api.get(other)), describe=lambda: describe(space))
    await_nodes(space, "job", 1)
    jobs.await_step(space, step + 5)
    last = placed(space)
    jobs.tell_to_finish(space)
    await_said(space, "leaves the size alone: the job has ended")

    assert ([*first], sorted(grown), largest) == ([NODE_NAME], sorted(["one", "two", NODE_NAME]), 3)
    assert (sorted(drained), [*last]) == (sorted(["one", NODE_NAME]), [NODE_NAME])
    assert len({each[NODE_NAME]["metadata"]["uid"] for each in (first, grown, drained, last)}) == 1
    assert space.api.get(other)["spec"]["nodeName"] == "one"
    jobs.check_result(space, jobs.Training())


@pytest.fixture
def urgent(api: kube.Kube) -> Iterator[str]:
    """The name of a priority above that of jobs."""
    with priority(api, "urgent", 1000) as name:
        yield name


@pytest.fixture
def humble(api: kube.Kube) -> Iterator[str]:
    """The name of a priority below that of jobs."""
    with priority(api, "humble", -1) as name:
        yield name


@contextmanager
def priority(api: kube.Kube, name: str, value: int) -> Iterator[str]:
    """There is a priority whose pods take nobody's place by themselves."""
    own = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    api.apply({**own, "value": value, "preemptionPolicy": "Never"})
    yield name
    api.delete(own)


def with_priority(pod: kube.Object, name: str) -> kube.Object:
    """The pod with a priority, and free to run where there is no machine."""
    return {**pod, "spec": {**pod["spec"], "priorityClassName": name, "tolerations": [TOLERATION]}}


def placed(space: Namespace) -> dict[str, kube.Object]:
    """The ready pods of an Indexed Job, by the node of the cluster that they are on."""
    return {pod["spec"]["nodeName"]: pod for pod in pods(space, "job") if is_ready(pod)}


def budget_of(space: Namespace) -> kube.Object:
    """A PodDisruptionBudget of somebody else that wants two of the job's nodes."""
    selector = {"matchLabels": {"training.kubeflow.org/job-name": JOB}}
    budget = space.named("policy/v1", "PodDisruptionBudget", "theirs")
    return {**budget, "spec": {"minAvailable": 2, "selector": selector}}


def test_a_train_job_follows_the_room_where_job_set_lets_it(
    space: Namespace,
    training: JobStack,
    slots: Slots,
    elastic_job_sets: Callable[[], AbstractContextManager[None]],
) -> None:
    """It begins with the nodes of its config, and says why it stays there; with the feature gate it grows and shrinks.

    It ends with the exact weights, and `up` leaves the size alone.
    """
    target, elastic = "trainjob", {"nnodes": "1:3", "initial_nodes": 2, "nproc_per_node": 1, "elastic_job_set": True}
    settings = config(space, target, elastic=elastic)
    slots(3)
    training.up(settings)
    jobs.await_world(space, 2)
    await_said(space, f"size 2: {FIXED}")

    with elastic_job_sets():
        jobs.await_world(space, 3, after=jobs.last_step(space))
        left_alone = training.up(settings), size(space, target)
        assert_rights(space, target)
        other = space.apply(waiting_pod(space, "other"))
        until("the other pod", lambda: is_ready(space.api.get(other)), describe=lambda: describe(space))
        jobs.await_world(space, 2, after=jobs.last_step(space))
        jobs.tell_to_finish(space)
        await_said(space, "leaves the size alone: the job has ended")

    assert left_alone == ({}, 3)
    jobs.check_result(space, jobs.Training())


def test_the_driver_may_do_nothing_else(space: Namespace, idle: JobStack, slots: Slots) -> None:
    """Its account's rights are those that the documentation names, and no other container has a token."""
    slots(1)
    idle.up(config(space, "pytorchjob"))
    await_said(space, "size 1: waits before it asks for more")
    assert_rights(space, "pytorchjob")


EVERY_DRIVERS = [("list", "", "pods", ""), ("list", "policy", "poddisruptionbudgets", "")]
RIGHTS = {
    "job": [("get", "batch", "jobs", JOB), ("patch", "batch", "jobs", JOB)],
    "pytorchjob": [("get", "kubeflow.org", "pytorchjobs", JOB), ("patch", "kubeflow.org", "pytorchjobs/scale", JOB)],
    "trainjob": [
        ("get", "trainer.kubeflow.org", "trainjobs", JOB),
        ("get", "jobset.x-k8s.io", "jobsets", JOB),
        ("patch", "jobset.x-k8s.io", "jobsets", JOB),
    ],
}
"""What the account may do to the objects of each `target`."""
NOBODYS = [
    ("patch", "kubeflow.org", "pytorchjobs", JOB),
    ("patch", "kubeflow.org", "pytorchjobs/scale", "another"),
    ("list", "kubeflow.org", "pytorchjobs", ""),
    ("patch", "batch", "jobs", "another"),
    ("delete", "batch", "jobs", JOB),
    ("list", "batch", "jobs", ""),
    ("patch", "batch", "jobs", f"{JOB}-node-0"),
    ("patch", "trainer.kubeflow.org", "trainjobs", JOB),
    ("patch", "jobset.x-k8s.io", "jobsets", "another"),
    ("delete", "jobset.x-k8s.io", "jobsets", JOB),
    ("list", "jobset.x-k8s.io", "jobsets", ""),
    ("get", "", "secrets", f"{JOB}-store"),
    ("list", "", "secrets", ""),
    ("create", "", "pods", ""),
    ("get", "", "pods/log", "reader"),
    ("patch", "apps", "deployments", f"{JOB}-rdzv"),
    ("list", "", "nodes", ""),
]


def assert_rights(space: Namespace, target: str) -> None:
    """The driver's account has the rights that the documentation names and no other; no other container has a token."""
    user = f"system:serviceaccount:{space.name}:{JOB}-driver"
    asked = [*EVERY_DRIVERS, *itertools.chain.from_iterable(RIGHTS.values()), *NOBODYS]
    tokens = {
        container["name"]
        for pod in space.api.list("v1", "Pod", space.name, f"app.kubernetes.io/instance={JOB}")
        for container in pod["spec"]["containers"]
        if any("/run/secrets" in mount["mountPath"] for mount in container.get("volumeMounts", ()))
    }

    assert [each for each in asked if may(space, user, *each)] == [*EVERY_DRIVERS, *RIGHTS[target]]
    assert tokens == {"driver"}


def may(space: Namespace, user: str, verb: str, group: str, resource: str, name: str) -> bool:
    """What the API server says of an account."""
    resource, _, subresource = resource.partition("/")
    attributes = {"namespace": space.name, "verb": verb, "group": group, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {**attributes, "resource": resource, "subresource": subresource}},
    }
    answer = space.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
