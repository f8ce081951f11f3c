"""Whole lives of jobs on a real cluster: after any event training ends with the weights of an undisturbed run."""

from __future__ import annotations

import signal

import pytest

from tests.cluster import faults, jobs
from tests.cluster.cluster import MOUNT, READER, Namespace, restarts
from tests.cluster.stack import JobStack
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB = "story"
PREEMPTED = 128 + signal.SIGTERM


def container_restarts(space: Namespace) -> int:
    """Container restarts of the job's pods that are there."""
    return sum(restarts(pod) for pod in space.pods(JOB))


def test_a_job_grows_and_shrinks_by_hand_and_succeeds_once(space: Namespace, stack: JobStack) -> None:
    """A third node joins and leaves through the scale subresource; the first two stay, and `up` starts none again."""
    training = jobs.Training()
    settings = jobs.config(space, training)
    created = stack.up(settings)
    first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.await_running(JOB, 2)}
    jobs.await_world(space, 2)

    space.scale(JOB, 3)
    jobs.await_world(space, 3)
    grown = space.uids(JOB)
    space.scale(JOB, 2)
    jobs.await_world(space, 2, after=jobs.last_step(space))
    restarted = container_restarts(space)
    jobs.finish(space, JOB, training)
    uid = space.api.get(space.job(JOB))["metadata"]["uid"]
    again = stack.up(settings)

    assert created == dict.fromkeys(("launcher", "network_policy", "service", "token", "store", "workload"), "create")
    assert first.items() <= grown.items()
    assert restarted == 0
    assert again == {}
    assert space.api.get(space.job(JOB))["metadata"]["uid"] == uid


def test_a_new_image_replaces_the_job(space: Namespace, stack: JobStack) -> None:
    """A changed image is a replacement: every pod is new, and training goes on from the checkpoint."""
    training = jobs.Training()
    old, new = space.cluster.images
    stack.up(jobs.config(space, training, image=old))
    jobs.await_step(space, 10)
    before = set(space.uids(JOB).values())

    expected = stack.preview(jobs.config(space, training, image=new))
    done = stack.up(jobs.config(space, training, image=new))
    pods = space.await_running(JOB, 2)

    assert expected == done == {"store": "update", "workload": "delete-replaced"}
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in pods)
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {new}
    jobs.finish(space, JOB, training)


def test_a_live_job_is_taken_over_and_made_anew_later(space: Namespace, stack: JobStack) -> None:
    """The pods of a job that was applied by hand stay while it is adopted; without the key it is made anew."""
    training = jobs.Training()
    settings = jobs.config(space, training)
    by_hand = {**settings, **jobs.IDLE, "launcher": {"delivery": "image"}}
    (workload,) = (each for each in jobs.objects(JOB, by_hand, "idle") if each["kind"] == "PyTorchJob")
    space.apply(workload)
    space.await_running(JOB, 2)
    before = space.uids(JOB)

    taken = stack.up({**settings, "adopted": True})
    edited = stack.up({**settings, "adopted": True, "image": space.cluster.images[1]})
    kept = space.uids(JOB)
    expected, done = stack.preview(settings), stack.up(settings)
    jobs.await_step(space, 10)

    assert (taken, edited, kept) == ({"workload": "import"}, {}, before)
    assert expected == done
    assert done.pop("workload") == "delete-replaced"
    assert set(done.values()) == {"create"}
    assert set(before.values()).isdisjoint(space.uids(JOB).values())
    jobs.finish(space, JOB, training)


@pytest.mark.usefixtures("metrics")
def test_an_autoscaler_follows_the_load(space: Namespace, stack: JobStack) -> None:
    """A real autoscaler grows a busy job; `preview` and `up` after it change nothing."""
    training = jobs.Training(busy=True)
    speed = {"nodes": 2, "period_seconds": 15, "stabilization_window_seconds": 0}
    scaling = {"metrics": [{"type": "cpu", "target": 40}], "behavior": {"scale_up": speed}}
    settings = jobs.config(
        space, training, autoscaling=scaling, elastic={"nnodes": "1:2", "initial_nodes": 1, "nproc_per_node": 1}
    )
    stack.up(settings)

    jobs.await_world(space, 2)
    foreseen, done = stack.preview(settings), stack.up(settings)
    replicas = space.api.get(space.job(JOB))["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]

    assert foreseen == done == {}
    assert replicas == 2
    assert container_restarts(space) == 0
    jobs.finish(space, JOB, training)


def test_a_job_is_suspended_and_resumed(space: Namespace, stack: JobStack) -> None:
    """Suspension ends all pods; after it training goes on from the checkpoint."""
    training = jobs.Training()
    settings = jobs.config(space, training)
    stack.up(settings)
    jobs.await_step(space, 10)

    held = stack.up({**settings, "run_policy": {"suspend": True}})
    until("no pods", lambda: not space.pods(JOB), describe=space.describe)
    resumed = stack.up({**settings, "run_policy": {"suspend": False}})

    assert held == resumed == {"workload": "update"}
    jobs.finish(space, JOB, training)


def test_the_first_node_is_lost_and_replaced(space: Namespace, stack: JobStack) -> None:
    """A pod that is deleted at once comes again under its name; no container is started twice."""
    training = jobs.Training()
    stack.up(jobs.config(space, training))
    space.await_running(JOB, 2)
    jobs.await_step(space, 10)
    before = space.uids(JOB)
    name = f"{JOB}-worker-0"

    faults.lose_pod(space, name, grace=0)
    after = space.uids(JOB)
    jobs.await_world(space, 2, after=jobs.last_step(space))

    jobs.finish(space, JOB, training)
    assert space.starts(JOB) == dict.fromkeys([*before.values(), after[name]], 1)


def test_a_preempted_node_saves_first_and_is_replaced(space: Namespace, stack: JobStack) -> None:
    """A pod that is deleted in its own time ends with 143 after a checkpoint: no step is done twice."""
    training = jobs.Training(reports=True)
    stack.up(jobs.config(space, training))
    space.await_running(JOB, 2)
    jobs.await_step(space, 10)
    before = space.uids(JOB)
    name = f"{JOB}-worker-0"

    with space.held(name):
        space.api.delete(space.pod(name))
        ended = until("its end", lambda: space.exit_codes(name), describe=space.describe)
    until("another pod", lambda: space.uids(JOB).get(name) not in {None, before[name]}, describe=space.describe)
    after = space.uids(JOB)
    jobs.await_world(space, 2, after=jobs.last_step(space))

    assert ended == [PREEMPTED]
    jobs.finish(space, JOB, training)
    steps = jobs.first_workers_steps(space)
    assert steps == list(range(1, len(steps) + 1))
    assert space.starts(JOB) == dict.fromkeys([*before.values(), after[name]], 1)


def test_a_worker_that_dies_or_hangs_is_started_again_in_its_pod(space: Namespace, stack: JobStack) -> None:
    """A training process that is killed, or stopped for good, costs no pod and no container."""
    training = jobs.Training()
    stack.up(jobs.config(space, training))
    space.await_running(JOB, 2)
    jobs.await_step(space, 10)
    before = space.uids(JOB)

    # Two nodes: one that fails twice in a row alone is replaced.
    for node, number in enumerate((signal.SIGKILL, signal.SIGSTOP)):
        faults.signal_worker(space, f"{JOB}-worker-{node}", number)
        jobs.await_step(space, jobs.last_step(space) + 5)  # a step or two may be on their way

    assert space.uids(JOB) == before
    assert container_restarts(space) == 0
    jobs.finish(space, JOB, training)


def test_eight_workers_a_pod_go_through_every_change(space: Namespace, stack: JobStack) -> None:
    """One of sixteen workers is killed, then a pod is lost, then a third pod comes; no container is started twice."""
    training = jobs.Training(seconds=0.5)
    elastic = {"nnodes": "1:3", "initial_nodes": 2, "nproc_per_node": 8}
    stack.up(jobs.config(space, training, elastic=elastic, resources={"memory": "4Gi"}))
    space.await_running(JOB, 2)
    jobs.await_world(space, 16)
    jobs.await_step(space, 10)
    first = space.uids(JOB)

    faults.signal_worker(space, f"{JOB}-worker-1", signal.SIGKILL)
    jobs.await_world(space, 16, after=jobs.last_step(space))
    after_failure = space.uids(JOB)
    faults.lose_pod(space, f"{JOB}-worker-1", grace=0)
    jobs.await_world(space, 16, after=jobs.last_step(space))
    space.scale(JOB, 3)
    jobs.await_world(space, 24, after=jobs.last_step(space))
    last = space.uids(JOB)

    assert after_failure == first
    assert last[f"{JOB}-worker-0"] == first[f"{JOB}-worker-0"]
    jobs.finish(space, JOB, training)
    assert space.starts(JOB) == dict.fromkeys([*first.values(), *last.values()], 1)


def test_a_worker_killed_for_memory_is_started_again(space: Namespace, stack: JobStack) -> None:
    """The kernel's out-of-memory kill is one failure of one worker, and training goes on from the checkpoint."""
    training = jobs.Training(hog=True)
    stack.up(jobs.config(space, training))

    jobs.await_step(space, 30)

    assert space.cluster.run("-n", space.name, "exec", READER, "--", "ls", f"{MOUNT}/hogged")
    jobs.finish(space, JOB, training)


def test_a_full_volume_costs_nothing_once_there_is_room(small_space: Namespace, stack: JobStack) -> None:
    """While no checkpoint can be written, workers fail and are started again; with room again, training goes on."""
    space, training = small_space, jobs.Training()
    fill = f"head -c 2000000 /dev/zero > {MOUNT}/filler"
    stack.up(jobs.config(space, training))
    jobs.await_step(space, 10)

    space.cluster.run("-n", space.name, "exec", READER, "--", "sh", "-c", f"({fill}) 2>/dev/null || true")
    full = jobs.last_step(space)
    until("a failure", lambda: "No space left" in logs(space), describe=space.describe)
    space.cluster.run("-n", space.name, "exec", READER, "--", "rm", f"{MOUNT}/filler")
    jobs.await_step(space, full + 10)

    jobs.finish(space, JOB, training)


def test_a_cluster_node_that_is_silent_for_a_while_costs_nothing(space: Namespace, stack: JobStack) -> None:
    """Not ready for less than the pods tolerate: no pod and no container is replaced, and training goes on."""
    testbed = space.cluster.testbed
    if testbed is None:
        pytest.skip("only the testbed's kubelet may be stopped")
    training = jobs.Training()
    stack.up(jobs.config(space, training))
    space.await_running(JOB, 2)
    jobs.await_step(space, 10)
    before = space.uids(JOB)

    with faults.silent_node(testbed):
        noticed = jobs.last_step(space)
    jobs.await_step(space, noticed + 5)

    assert space.uids(JOB) == before
    assert container_restarts(space) == 0
    jobs.finish(space, JOB, training)


def logs(space: Namespace) -> str:
    """What the job's pods have said."""
    return "".join(
        space.cluster.run("-n", space.name, "logs", pod["metadata"]["name"], "--tail=-1") for pod in space.pods(JOB)
    )
