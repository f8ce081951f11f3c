"""Cluster nodes that fall silent: what becomes of their pods, and of the jobs, with the real controllers.

The nodes are KWOK's: nothing runs in their pods, and silence is an ended heartbeat.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

import tests.jobs
from tests.cluster import jobs, kube
from tests.cluster.cluster import Namespace
from tests.cluster.slots import REQUEST, SLOT, Slots
from tests.cluster.targets import TARGETS, Target
from tests.cluster.testbed.kwok import TOLERATION, Nodes
from tests.cluster.testbed.layout import NODE_NAME
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.usefixtures("trainer")]
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
FIRST, SECOND = "silent-1", "silent-2"
LOOK_SECONDS = 12
"""Longer than the delay after which the Job controller replaces the first pod that an index loses."""
QUIT = """
import os, pathlib
for name in pathlib.Path("/proc").glob("[0-9]*/comm"):
    if name.read_text() == "sleep\\n":
        os.kill(int(name.parent.name), 9)
"""
"""Has a node that does nothing end well: its shell waits for this process."""


def test_pods_of_silent_nodes_are_replaced_once_these_are_out_of_service(
    nodes: Nodes, slots: Slots, space: Namespace
) -> None:
    """Each job has a pod on the testbed's own node and on two that fall silent; the Job's own node trains.

    Nobody knows whether the pods have ended, so no controller makes others, though there is room. With the taint that
    the documentation names, those of the first node are replaced. Then the jobs end while the second is silent: the
    operator's has succeeded at once, the others once its pods are gone, and a Job that was made smaller by one replaces
    no other pod.
    """
    slots(len(TARGETS))
    places = spread(nodes, space)
    lost = {name: target.nodes(space, name)[1]["metadata"]["uid"] for name, target in TARGETS.items()}

    nodes.silence()
    slots(3 * len(TARGETS))
    until("pods that are to go", lambda: len(going(space)) == 2 * len(TARGETS), describe=space.describe)
    before, step = uids(space), jobs.last_step(space)
    time.sleep(LOOK_SECONDS)
    after, status, trained = uids(space), live(space, "job")["status"], jobs.last_step(space) - step
    space.cluster.run("taint", "node", FIRST, OUT_OF_SERVICE)
    for name, target in TARGETS.items():
        target.replace(space, name, 1, lost[name])
    jobs.await_world(space, 2, after=step)
    left, waiting = succeeded(space)
    space.cluster.run("taint", "node", SECOND, OUT_OF_SERVICE)
    for name in ("job", "trainjob"):
        TARGETS[name].await_end(space, name)

    assert places == [[NODE_NAME, FIRST, SECOND]] * len(TARGETS)
    assert after == before
    assert (status["active"], status["terminating"], status.get("failed", 0)) == (1, 2, 0)
    assert trained > 0
    assert (left, waiting) == ([1], [])
    jobs.check_result(space, jobs.Training())


def spread(nodes: Nodes, space: Namespace) -> list[list[str]]:
    """Begins each job, which grows as the two further nodes come; returns the places of its pods, by index."""
    for name, target in TARGETS.items():
        for manifest in impatient_objects(space, target):
            space.apply(manifest)
        target.let_in(space, name, 1)
    for count, host in enumerate((FIRST, SECOND), 2):
        nodes.add(host, {SLOT: str(len(TARGETS))})
        for name, target in TARGETS.items():
            target.grow(space, name, count)
    jobs.await_world(space, 1)
    pods = [target.nodes(space, name) for name, target in TARGETS.items()]
    return [[pod["spec"]["nodeName"] for _, pod in sorted(each.items())] for each in pods]


def succeeded(space: Namespace) -> tuple[list[int], list[str]]:
    """One node of each job succeeds, while the second cluster node has a pod of each; the operator's job has ended.

    Returns the nodes of the Job, which is made smaller before and loses a node, and the jobs that are complete.
    """
    space.api.patch(space.named("batch/v1", "Job", "job"), {"spec": {"parallelism": 2, "completions": 2}})
    space.api.delete(space.pod(node(space, "job", 0)), grace=0)
    for name in ("pytorchjob", "trainjob"):
        space.start(node(space, name, 0), QUIT)
    TARGETS["pytorchjob"].await_end(space, "pytorchjob")
    await_success(space, "trainjob-node-0")
    time.sleep(LOOK_SECONDS)
    left = sorted(TARGETS["job"].nodes(space, "job"))
    jobs.await_world(space, 1, after=jobs.last_step(space))
    jobs.tell_to_finish(space)
    await_success(space, "job")
    return left, [name for name in ("job", "trainjob") if "Complete" in TARGETS[name].says(space, name)]


def impatient_objects(space: Namespace, target: Target) -> list[kube.Object]:
    """A job of the target's name whose nodes each take a slot, and whose pods are given up a second after their node.

    It begins with one node. That of the Job trains; the others' nodes do nothing.
    """
    arm: jobs.Arm = "ours" if target.name == "job" else "idle"
    idle: dict[str, Any] = {} if arm == "ours" else jobs.IDLE
    settings = target.config(space, jobs.Training(), **idle)
    settings["elastic"] = {**settings["elastic"], **({} if target.is_gated else {"initial_nodes": 1})}
    settings["runtime"] = {**settings["runtime"], "startup_wait_seconds": 0}
    settings["resources"] = {**settings["resources"], "gpu": REQUEST}
    settings["placement"] = {"tolerations": [TOLERATION]}
    objects = jobs.objects(target.name, settings, arm)
    (template,) = tests.jobs.templates({"pods": next(each for each in objects if each["kind"] in jobs.HAVE_PODS)})
    for toleration in template["spec"]["tolerations"]:
        if "tolerationSeconds" in toleration:
            toleration["tolerationSeconds"] = 1
    return objects


def all_pods(space: Namespace) -> list[kube.Object]:
    """The jobs' pods, those that are to go included."""
    return space.api.list("v1", "Pod", space.name, "app.kubernetes.io/component=worker")


def uids(space: Namespace) -> set[str]:
    """Identity of all pods of the jobs."""
    return {pod["metadata"]["uid"] for pod in all_pods(space)}


def going(space: Namespace) -> list[str]:
    """The pods that the cluster wants to end."""
    return [pod["metadata"]["name"] for pod in all_pods(space) if "deletionTimestamp" in pod["metadata"]]


def node(space: Namespace, job: str, index: int) -> str:
    """Name of the pod that is a job's node of this index now."""
    return str(TARGETS[job].nodes(space, job)[index]["metadata"]["name"])


def live(space: Namespace, name: str) -> kube.Object:
    """A Job as the cluster has it now."""
    return space.api.get(space.named("batch/v1", "Job", name))


def await_success(space: Namespace, name: str) -> None:
    """Returns once the Job says that it has succeeded, which it says before it is complete."""

    def said() -> bool:
        told = live(space, name)["status"].get("conditions", [])
        return "SuccessCriteriaMet" in {each["type"] for each in told if each["status"] == "True"}

    until(f"the success of {name}", said, jobs.TRAINING_SECONDS, describe=space.describe)
