"""Whole lives of jobs on a real cluster: whatever happens, training ends with the undisturbed weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import jobs
from tests.cluster.cluster import Namespace, is_ready, restarts
from tests.cluster.stack import Engine, Stack
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
JOB = "story"


@pytest.fixture
def stack(engine: Engine, tmp_path: Path, arm: jobs.Arm, space: Namespace) -> Iterator[Stack]:
    """A stack of its own for the one job of a story; it is gone before the namespace is."""
    with engine.stack(space.name, JOB, tmp_path, arm) as own:
        yield own


def uids(space: Namespace) -> dict[str, str]:
    """Identity of the job's pods by name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.pods(JOB)}


def container_restarts(space: Namespace) -> int:
    """Container restarts of the job's pods that are there."""
    return sum(restarts(pod) for pod in space.pods(JOB))


def test_a_job_trains_and_succeeds_once(space: Namespace, stack: Stack) -> None:
    """`up` creates the job, it trains to its end, and the next `up` does not start it again."""
    training = jobs.Training(steps=20, seconds=0.1)
    settings = jobs.config(space, training)

    created = stack.up(settings)
    space.await_condition(JOB, "Succeeded")
    uid = space.api.get(space.job(JOB))["metadata"]["uid"]
    again = stack.up(settings)

    assert set(created) == {"create"}
    assert again == {}
    assert space.api.get(space.job(JOB))["metadata"]["uid"] == uid
    jobs.assert_undisturbed(space, training)


def test_a_new_image_replaces_the_job(space: Namespace, stack: Stack) -> None:
    """A changed image is a replacement: every pod is new, and training goes on from the checkpoint."""
    training = jobs.Training(steps=80, seconds=0.3)
    old, new = space.cluster.images
    stack.up(jobs.config(space, training, image=old))
    jobs.await_step(space, 10)
    before = set(uids(space).values())

    expected = stack.preview(jobs.config(space, training, image=new))
    done = stack.up(jobs.config(space, training, image=new))
    pods = space.await_running(JOB, 2)
    space.await_condition(JOB, "Succeeded")

    assert expected == done
    assert done["replace"] >= 1
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in pods)
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {new}
    jobs.assert_undisturbed(space, training)


def test_a_job_grows_and_shrinks_by_hand(space: Namespace, stack: Stack) -> None:
    """A third node joins and leaves through the scale subresource; the first two pods stay."""
    training = jobs.Training(steps=150, seconds=0.3)
    stack.up(jobs.config(space, training))
    first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.await_running(JOB, 2)}
    jobs.await_world(space, 2)

    space.scale(JOB, 3)
    jobs.await_world(space, 3)
    grown = uids(space)
    space.scale(JOB, 2)
    jobs.await_world(space, 2, after=jobs.last_step(space))
    space.await_condition(JOB, "Succeeded")

    assert first.items() <= grown.items()
    jobs.assert_undisturbed(space, training)


def test_an_autoscaler_follows_the_load(space: Namespace, stack: Stack) -> None:
    """A real autoscaler grows a busy job; `preview` and `up` after it change nothing."""
    training = jobs.Training(steps=150, seconds=0.4, busy=True)
    speed = {"nodes": 2, "period_seconds": 15, "stabilization_window_seconds": 0}
    scaling = {"metrics": [{"type": "cpu", "target": 40}], "behavior": {"scale_up": speed}}
    settings = jobs.config(
        space, training, autoscaling=scaling, elastic={"nnodes": "1:2", "initial_nodes": 1, "nproc_per_node": 1}
    )
    stack.up(settings)
    jobs.await_world(space, 1)

    jobs.await_world(space, 2)
    foreseen, done = stack.preview(settings), stack.up(settings)
    replicas = space.api.get(space.job(JOB))["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    space.await_condition(JOB, "Succeeded")

    assert foreseen == done == {}
    assert replicas == 2
    jobs.assert_undisturbed(space, training)


def test_a_job_is_suspended_and_resumed(space: Namespace, stack: Stack) -> None:
    """Suspension ends all pods; after it training goes on from the checkpoint."""
    training = jobs.Training(steps=60, seconds=0.3)
    settings = jobs.config(space, training)
    stack.up(settings)
    jobs.await_step(space, 10)

    held = stack.up({**settings, "run_policy": {"suspend": True}})
    until("no pods", lambda: not space.pods(JOB), describe=space.describe)
    resumed = stack.up({**settings, "run_policy": {"suspend": False}})
    space.await_condition(JOB, "Succeeded")

    assert held == resumed == {"update": 1}
    jobs.assert_undisturbed(space, training)


@pytest.mark.parametrize("victim", ["worker-1", "worker-0"])
def test_a_lost_node_is_replaced(space: Namespace, stack: Stack, victim: str) -> None:
    """A pod that is force-deleted comes again under its name, and training goes on."""
    training = jobs.Training(steps=120, seconds=0.3)
    stack.up(jobs.config(space, training))
    space.await_running(JOB, 2)
    jobs.await_step(space, 10)
    before = uids(space)
    name = f"{JOB}-{victim}"

    space.api.delete(space.pod(name), grace=0)
    until("the new pod", lambda: _is_new(space, name, before[name]), describe=space.describe)
    jobs.await_world(space, 2, after=jobs.last_step(space))
    space.await_condition(JOB, "Succeeded")

    jobs.assert_undisturbed(space, training)


def _is_new(space: Namespace, name: str, old: str) -> bool:
    pods: dict[str, Any] = {pod["metadata"]["name"]: pod for pod in space.pods(JOB)}
    return name in pods and pods[name]["metadata"]["uid"] != old and is_ready(pods[name])
