"""TrainJobs on the real API server, with the real controllers of Kubeflow Trainer and JobSet."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from elastic_infra.manifests.train_job import VERSION
from tests.cluster import faults, jobs, kube
from tests.cluster.account import Account
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.stack import JobStack
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.usefixtures("trainer")]
JOB = "trained"
GATE = "tests.elastic-infra/capacity"
MOST_CHARACTERS = 500
"""Of a message: JobSet's own one has all of the pods' template."""
INDEX = "batch.kubernetes.io/job-completion-index"
SELECTOR = {"kubernetes.io/os": "linux"}


def gated(space: Namespace, nodes: str, **changes: Any) -> dict[str, Any]:
    """The config of a TrainJob whose pods each wait for `let_in`, as pods wait for room in a cluster."""
    return jobs.config(
        space,
        jobs.Training(),
        target="trainjob",
        elastic={"nnodes": nodes, "nproc_per_node": 1, "max_restarts": 0},
        resources={"cpu": "250m", "memory": "1Gi"},
        runtime={"startup_patience_seconds": 30, "startup_wait_seconds": 5},
        overlays={"pod": {"spec": {"schedulingGates": [{"name": GATE}]}}},
        **changes,
    )


def nodes(space: Namespace) -> list[kube.Object]:
    """The job's pods that are not on their way out, by index."""
    found = space.api.list("v1", "Pod", space.name, "app.kubernetes.io/component=worker")
    alive = [
        pod
        for pod in found
        if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in {"Pending", "Running"}
    ]
    return sorted(alive, key=lambda pod: int(pod["metadata"]["labels"][INDEX]))


def let_in(space: Namespace, count: int, of: int) -> None:
    """Room for so many more nodes, the first that wait of `of` pods; returns once the nodes run."""
    until(f"{of} pods", lambda: len(nodes(space)) == of, describe=space.describe)
    ungate(space, count)
    running = sum(map(is_ready, nodes(space))) + count
    until(f"{running} nodes", lambda: sum(map(is_ready, nodes(space))) == running, describe=space.describe)


def ungate(space: Namespace, count: int) -> list[str]:
    """Room for so many more nodes, for which nothing waits; returns the names of their pods."""
    waiting = [pod for pod in nodes(space) if pod["spec"].get("schedulingGates")][:count]
    for pod in waiting:
        space.api.patch(space.pod(pod["metadata"]["name"]), {"spec": {"schedulingGates": None}})
    return [str(pod["metadata"]["name"]) for pod in waiting]


def exit_code(space: Namespace, pod: str) -> str:
    """How a pod has ended; empty while it may still run."""
    if space.api.find(space.pod(pod)) is None:
        return "taken away"
    return " ".join(map(str, space.exit_codes(pod)))


def train_job(space: Namespace) -> kube.Object:
    """The TrainJob as the cluster has it now."""
    return space.api.get(space.named(VERSION, "TrainJob", JOB))


def await_end(space: Namespace, end: str) -> None:
    """Returns once the TrainJob says so."""

    def said() -> bool:
        told = train_job(space).get("status", {}).get("conditions", [])
        return end in {each["type"] for each in told if each["status"] == "True"}

    until(f"the TrainJob to be {end}", said, jobs.TRAINING_SECONDS, describe=space.describe)


def test_three_of_six_nodes_train_and_end_the_job(space: Namespace, stack: JobStack) -> None:
    """No gang is needed, and once one node has succeeded no late one trains again: pods that wait are taken away.

    One that finds room at that very moment runs, learns that the job has ended, and ends as well.
    """
    created = stack.up(gated(space, "1:6"))
    let_in(space, 3, of=6)
    jobs.await_world(space, 3)
    with faults.paused_controllers(space.cluster.testbed):
        jobs.tell_to_finish(space)
        (late,) = ungate(space, 1)
        end = until("the late node to end", lambda: exit_code(space, late), describe=space.describe)
    await_end(space, "Complete")
    steps = jobs.last_step(space)
    until("no pods", lambda: not nodes(space), describe=space.describe)
    again = stack.up(gated(space, "1:6"))

    made = ("launcher", "network_policy", "service", "token", "store", "runtime", "workload")
    assert created == dict.fromkeys(made, "create")
    assert again == {}
    assert end in ({"0"} if space.cluster.testbed else {"0", "143", "taken away"})
    assert [bool(space.read(f"{JOB}-node-0-{index}.jsonl")) for index in range(6)] == [True] * 3 + [False] * 3
    assert jobs.last_step(space) == steps
    jobs.check_result(space, jobs.Training())
    stack.destroy()
    assert space.api.list(VERSION, "TrainingRuntime", space.name) == []


def test_a_train_job_grows_and_shrinks_with_what_the_cluster_has(
    space: Namespace, stack: JobStack, operator: Account
) -> None:
    """More nodes as room comes, fewer as they are lost: one TrainJob, never changed.

    The commands know the job, and none of Trainer's variables is in a pod.
    """
    settings = gated(space, "1:4", launcher={"metrics_port": 9100})
    stack.up(settings)
    let_in(space, 2, of=4)
    jobs.await_world(space, 2)
    let_in(space, 1, of=4)
    jobs.await_world(space, 3, after=jobs.last_step(space))
    uid = train_job(space)["metadata"]["uid"]

    space.api.delete(space.pod(nodes(space)[1]["metadata"]["name"]), grace=0)
    jobs.await_world(space, 2, after=jobs.last_step(space))
    seen, scaled = operator.run("status", JOB), operator.run("scale", JOB, "2")
    rank = operator.run("logs", JOB, "--rank", "0", "--tail", "1")
    variables = {each["name"]: each.get("value") for each in nodes(space)[0]["spec"]["containers"][0]["env"]}
    jobs.tell_to_finish(space)
    await_end(space, "Complete")

    assert train_job(space)["metadata"]["uid"] == uid
    assert f"{JOB} in namespace {space.name}: running" in seen.out, seen.err
    assert "2 of 4 nodes ready (1 to 4, set by the config)" in seen.out
    assert (scaled.code, "keeps its 4 nodes" in scaled.err) == (2, True), scaled.err
    assert rank.code == 0, rank.err
    assert (variables["PET_NNODES"], variables.keys() & {"PET_MASTER_ADDR", "PET_NODE_RANK"}) == ("1:4", set())
    jobs.check_result(space, jobs.Training())


def test_the_number_of_nodes_moves_where_job_set_lets_it(
    space: Namespace, stack: JobStack, operator: Account, elastic_job_sets: Callable[[], AbstractContextManager[None]]
) -> None:
    """Without the feature gate the command says so; with it the same TrainJob shrinks, grows and ends well.

    Trainer leaves the number alone while the job runs, and has a job that was held begin with its own.
    """
    settings = {**gated(space, "1:3"), "overlays": {}}
    settings["elastic"]["elastic_job_set"] = True
    stack.up(settings)
    jobs.await_world(space, 3)
    uid, refused = train_job(space)["metadata"]["uid"], operator.run("scale", JOB, "1")

    with elastic_job_sets():
        shrunk = operator.run("scale", JOB, "1")
        jobs.await_world(space, 1, after=jobs.last_step(space))
        seen, again = operator.run("status", JOB), stack.up(settings)
        grown = operator.run("scale", JOB, "2")
        jobs.await_world(space, 2, after=jobs.last_step(space))
        held = stack.up({**settings, "run_policy": {"suspend": True}})
        until("no pods", lambda: not nodes(space), describe=space.describe)
        while_held = operator.run("scale", JOB, "1")
        stack.up({**settings, "run_policy": {"suspend": False}})
        jobs.await_world(space, 3, after=jobs.last_step(space))
        operator.run("scale", JOB, "2")
        jobs.await_world(space, 2, after=jobs.last_step(space))
        jobs.tell_to_finish(space)
        await_end(space, "Complete")

    assert (refused.code, "feature gate ElasticJobSet is off" in refused.err) == (2, True), refused.err
    assert len(refused.err) < MOST_CHARACTERS
    assert (shrunk.code, shrunk.err) == (0, f"{JOB} in namespace {space.name} goes from 3 to 1 nodes.\n")
    assert (grown.code, grown.err) == (0, f"{JOB} in namespace {space.name} goes from 1 to 2 nodes.\n")
    assert "1 of 1 node ready (1 to 3, set by `elastic-infra scale`)" in seen.out, seen.err
    assert (again, held) == ({}, {"workload": "update"})
    assert (while_held.code, "is suspended" in while_held.err) == (2, True), while_held.err
    assert train_job(space)["metadata"]["uid"] == uid
    jobs.check_result(space, jobs.Training())


def test_a_change_makes_the_train_job_anew_and_a_hold_does_not(space: Namespace, stack: JobStack) -> None:
    """Another image is another runtime; a suspended job goes on from its checkpoint; exit code 1 fails it at once.

    What a user patches into the runtime while the job is suspended stays, until the job is made anew.
    """
    settings = {**gated(space, "1:2"), "overlays": {}}
    stack.up(settings)
    jobs.await_world(space, 2)
    suspended = {**settings, "run_policy": {"suspend": True}}
    held = stack.up(suspended)
    until("the user's patch to be taken", lambda: is_patched(space), describe=space.describe)
    patched = train_job(space)["spec"]["runtimePatches"]
    stack.refresh()
    shown = stack.preview(suspended)
    resumed = stack.up({**settings, "run_policy": {"suspend": False}})
    jobs.await_world(space, 2, after=jobs.last_step(space))
    kept = train_job(space)["spec"]["runtimePatches"]
    selectors = [pod["spec"].get("nodeSelector") for pod in nodes(space)]
    uid = train_job(space)["metadata"]["uid"]
    image = space.cluster.images[1]
    changed = stack.up({**settings, "image": image, "env": {**settings["env"], "TOY_IMAGE": image}})
    jobs.await_image(space, image)
    jobs.await_world(space, 2, after=jobs.last_step(space))

    faults.signal_worker(space, nodes(space)[1]["metadata"]["name"], signal.SIGKILL)
    await_end(space, "Failed")
    (runtime,) = space.api.list(VERSION, "TrainingRuntime", space.name)

    assert held == resumed == {"workload": "update"}
    assert (shown, kept, selectors) == ({}, patched, [SELECTOR] * 2)
    assert "runtimePatches" not in train_job(space)["spec"]
    assert (changed["runtime"], changed["workload"]) == ("create-replacement", "delete-replaced")
    assert train_job(space)["metadata"]["uid"] != uid
    assert train_job(space)["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    until("no pods", lambda: not nodes(space), describe=space.describe)


def is_patched(space: Namespace) -> bool:
    """Whether Trainer lets a user give the pods a node selector, which it does once those of the suspended job end."""
    pods = {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": SELECTOR}}}}}
    runtime = {"template": {"spec": {"replicatedJobs": [pods]}}}
    patch = {"manager": "tests.elastic-infra/user", "trainingRuntimeSpec": runtime}
    try:
        space.api.patch(space.named(VERSION, "TrainJob", JOB), {"spec": {"runtimePatches": [patch]}})
    except kube.KubeError as error:
        if "is still active" not in str(error):
            raise
        return False
    return True
