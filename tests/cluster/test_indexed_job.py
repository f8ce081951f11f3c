"""Jobs of several nodes without an operator: Indexed Jobs on the real API server and the real Job controller."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from elastic_infra.launcher import exit_codes
from tests.cluster import faults, jobs, kube
from tests.cluster.account import Account
from tests.cluster.cluster import Namespace, is_ready
from tests.cluster.stack import JobStack
from tests.cluster.test_events import told
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB, PORT = "indexed", 9100
INDEX = "batch.kubernetes.io/job-completion-index"


def job(space: Namespace) -> kube.Object:
    """The Job as the cluster has it now."""
    return space.api.get(space.named("batch/v1", "Job", JOB))


def all_pods(space: Namespace) -> list[kube.Object]:
    """The job's pods, those that wait or end included."""
    return space.api.list("v1", "Pod", space.name, f"batch.kubernetes.io/job-name={JOB}")


def pods(space: Namespace) -> dict[str, kube.Object]:
    """The pods that run and stay, by index."""
    alive = [pod for pod in all_pods(space) if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["labels"][INDEX]: pod for pod in alive}


def uids(space: Namespace) -> dict[str, str]:
    """Identity of the running pods, by index."""
    return {index: pod["metadata"]["uid"] for index, pod in pods(space).items()}


def await_end(space: Namespace, end: str) -> None:
    """Returns once the Job says so."""

    def said() -> bool:
        told = job(space).get("status", {}).get("conditions", [])
        return end in {each["type"] for each in told if each["status"] == "True"}

    until(f"the Job to be {end}", said, jobs.TRAINING_SECONDS, describe=space.describe)


def finish(space: Namespace) -> None:
    """Has the workers end after their next step; returns once the Job is complete."""
    jobs.tell_to_finish(space)
    await_end(space, "Complete")


def await_another(space: Namespace, index: str, before: str) -> None:
    """Returns once another pod has the index, and runs."""
    until(f"another pod {index}", lambda: uids(space).get(index) not in {None, before}, describe=space.describe)


def elastic(space: Namespace, training: jobs.Training) -> dict[str, Any]:
    """The config of a job of one to three nodes whose size people set."""
    sizes = {"nnodes": "1:3", "nproc_per_node": 1}
    return jobs.config(space, training, target="job", elastic=sizes, launcher={"metrics_port": PORT})


def lose(space: Namespace, index: str) -> None:
    """Deletes the pod of an index at once; returns when another runs in its place and all train together."""
    running = pods(space)
    pod = running[index]["metadata"]
    space.api.delete(space.pod(pod["name"]), grace=0)
    await_another(space, index, pod["uid"])
    jobs.await_world(space, len(running), after=jobs.last_step(space))


def lose_by_eviction(space: Namespace, index: str) -> None:
    """The same where the cluster takes the pod away."""
    before = uids(space)
    faults.evict(space, pods(space)[index]["metadata"]["name"])
    await_another(space, index, before[index])
    jobs.await_world(space, len(before), after=jobs.last_step(space))


def destroyed(space: Namespace, stack: JobStack) -> bool:
    """Whether the Job is gone with its stack."""
    stack.destroy()
    return space.api.find(space.named("batch/v1", "Job", JOB)) is None


def test_a_job_without_an_operator_lives_through_everything(
    space: Namespace, stack: JobStack, operator: Account
) -> None:
    """It shrinks, grows, loses nodes and ends with the weights of an undisturbed run.

    The pods of other indices stay, and `up` leaves the size alone that the command gave the job. A deleted pod counts
    as a failure, an evicted one does not. Commands know nodes by their index.
    """
    training = jobs.Training()
    settings = elastic(space, training)
    created = stack.up(settings)
    jobs.await_world(space, 3)

    first = uids(space)
    shrunk = operator.run("scale", JOB, "2")
    jobs.await_world(space, 2, after=jobs.last_step(space))
    until("two pods", lambda: len(uids(space)) == 2, describe=space.describe)
    left_alone = (uids(space), stack.preview(settings), stack.up(settings), job(space)["spec"]["completions"])
    grown = operator.run("scale", JOB, "3")
    jobs.await_world(space, 3, after=jobs.last_step(space))
    second = uids(space)
    lose(space, "1")
    lose_by_eviction(space, "2")
    live = job(space)
    seen, rank = operator.run("status", JOB), operator.run("logs", JOB, "--rank", "2", "--tail", "1")
    finish(space)
    again = (stack.up(settings), job(space)["metadata"]["uid"])

    assert created == dict.fromkeys(("launcher", "network_policy", "service", "token", "store", "workload"), "create")
    assert (shrunk.code, grown.code) == (0, 0), shrunk.err + grown.err
    assert left_alone == ({index: first[index] for index in "01"}, {}, {}, 2)
    assert {index: second[index] for index in "01"} == left_alone[0]
    assert live["status"]["failed"] == 1
    assert f"{JOB} in namespace {space.name}: running" in seen.out
    assert "3 of 3 nodes ready (1 to 3, set by `elastic-infra scale`)" in seen.out
    assert (rank.code, "by the order of the pods" in rank.err) == (0, False), rank.err
    assert again == ({}, live["metadata"]["uid"])
    jobs.check_result(space, training)
    assert destroyed(space, stack)


def test_the_first_node_with_the_store_is_lost(space: Namespace, stack: JobStack) -> None:
    """A fixed number of nodes has its store on index 0, which its Service finds again; the other pod stays."""
    training = jobs.Training()
    stack.up(jobs.config(space, training, target="job", elastic={"nnodes": 2, "nproc_per_node": 1}))
    jobs.await_world(space, 2)
    before = uids(space)

    lose(space, "0")
    after = uids(space)
    finish(space)

    assert after["1"] == before["1"]
    jobs.check_result(space, training)


def test_a_script_that_fails_for_good_frees_every_node_at_once(space: Namespace, stack: JobStack) -> None:
    """Exit code 1 of one launcher ends the whole Job, without a retry; it is suspended and resumed before.

    One Event tells of the failure, and one of the end.
    """
    sizes = {"nnodes": "1:3", "initial_nodes": 2, "max_restarts": 0}
    events = {"kubernetes_events": True}
    settings = jobs.config(space, jobs.Training(), target="job", elastic=sizes, launcher=events)
    stack.up(settings)
    jobs.await_world(space, 2)
    held = stack.up({**settings, "run_policy": {"suspend": True}})
    until("no pods", lambda: not pods(space), describe=space.describe)
    resumed = stack.up({**settings, "run_policy": {"suspend": False}})
    jobs.await_world(space, 2, after=jobs.last_step(space))

    faults.signal_worker(space, pods(space)["1"]["metadata"]["name"], signal.SIGKILL)
    await_end(space, "Failed")
    conditions = {each["type"]: each["reason"] for each in job(space)["status"]["conditions"]}

    assert held == resumed == {"workload": "update"}
    assert conditions["Failed"] == "PodFailurePolicy"
    until("no pods", lambda: not pods(space), describe=space.describe)
    until("the Event of the end", lambda: "TrainingFailed" in reasons(space), describe=space.describe)
    assert sorted(reasons(space)) == ["TrainingFailed", "WorkerFailed"]
    assert {each["involvedObject"]["uid"] for each in told(space)} == {job(space)["metadata"]["uid"]}


def reasons(space: Namespace) -> list[str]:
    """What the job's Events tell of, in their order."""
    return [str(each["reason"]) for each in told(space)]


STUCK = "from elastic_infra.training import Progress; Progress().step(7); raise SystemExit('no more data')"


def test_a_step_that_fails_again_and_again_frees_every_node_at_once(space: Namespace) -> None:
    """The launchers give up at the third failure, within their restarts, with exit code 93: no pod is tried again."""
    sizes = {"nnodes": "2:3", "initial_nodes": 2, "nproc_per_node": 1}  # with fewer, one node would be left out first
    settings = jobs.config(space, jobs.Training(), target="job", elastic=sizes, command=["python3", "-c", STUCK])
    jobs.submit(space, JOB, {**settings, "script": None}, "ours")
    await_end(space, "Failed")
    conditions = {each["type"]: each["reason"] for each in job(space)["status"]["conditions"]}
    ends = [ended for pod in all_pods(space) for ended in space.exit_codes(pod["metadata"]["name"])]

    assert conditions["Failed"] == "PodFailurePolicy"
    assert exit_codes.NO_PROGRESS in ends
    assert {*ends} <= {exit_codes.NO_PROGRESS, exit_codes.STOPPED}
    assert len(all_pods(space)) == 2


def test_a_live_job_of_others_is_taken_over(space: Namespace, stack: JobStack) -> None:
    """The pods of an Indexed Job that was applied by hand stay while it is adopted."""
    settings = jobs.config(space, jobs.Training(), target="job", elastic={"nnodes": 2, "nproc_per_node": 1})
    by_hand = {**settings, "launcher": {"delivery": "image"}}
    (workload,) = (each for each in jobs.objects(JOB, by_hand, "ours") if each["kind"] == "Job")
    workload["spec"]["template"]["spec"]["containers"][0] |= {"command": ["sh", "-c", jobs.IDLE_COMMAND], "args": []}
    space.apply(workload)
    until("two pods", lambda: len(uids(space)) == 2, describe=space.describe)
    before = uids(space)

    taken = stack.up({**settings, "adopted": True})

    assert taken == {"workload": "import"}
    assert uids(space) == before
