"""What growth into idle capacity asks the API server, and what it sets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from elastic_infra.launcher.driver.capacity import FIXED, look, sizes
from elastic_infra.launcher.driver.decision import Limits, Memory
from elastic_infra.launcher.driver.observation import ELASTIC
from tests.launcher.driver.test_observation import job, node
from tests.launcher.driver.test_queued import lacking, own, workload

LIMITS = Limits((1, 2, 3), 60)
READY = Memory(ready=0)


class Server:
    """Answers as the API server would, and keeps what it was asked."""

    def __init__(self, workload: Any, pods: list[Any]) -> None:
        self.answers = {"labelSelector": pods}
        self.workload = {**workload, "metadata": {"resourceVersion": "7", **workload["metadata"]}}
        self.calls: list[tuple[str, str, Any]] = []

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        self.calls.append((method, path, body))
        if "?" not in path and "poddisruptionbudgets" not in path:
            return self.workload
        return {"items": self.answers["labelSelector"] if "labelSelector" in path else []}


SELECTOR = "a=b,c=d"


def of(kind: str) -> tuple[str, str, str]:
    """The job that the manifests name."""
    return kind, "research", "train"


@pytest.mark.parametrize(
    ("kind", "spec", "path", "change"),
    [
        (
            "Job",
            {"parallelism": 1},
            "/apis/batch/v1/namespaces/research/jobs/train",
            {"parallelism": 2, "completions": 2},
        ),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
            "/apis/kubeflow.org/v1/namespaces/research/pytorchjobs/train/scale",
            {"replicas": 2},
        ),
    ],
)
def test_a_job_is_resized_through_its_own_object(kind: str, spec: Any, path: str, change: Any) -> None:
    """The object is the one that was looked at: the API server refuses the change of another version."""
    server = Server({"metadata": {}, "spec": spec}, [node(0)])
    _, said = look(server, of(kind), SELECTOR, LIMITS, READY)

    assert server.calls[-1] == ("PATCH", path, {"metadata": {"resourceVersion": "7"}, "spec": change})
    assert said == "size 1 to 2: asks whether there is room"
    assert [call[1] for call in server.calls[1:4]] == [
        "/api/v1/namespaces/research/pods?fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending&limit=500",
        "/apis/policy/v1/namespaces/research/poddisruptionbudgets",
        "/api/v1/namespaces/research/pods?labelSelector=a%3Db%2Cc%3Dd&limit=250",
    ]


def job_set(nodes: int) -> Any:
    """What Trainer makes of a TrainJob."""
    return job(0) | {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job(nodes)["spec"]}}]}}


def test_a_train_job_is_resized_through_its_job_set() -> None:
    """Both numbers of the one Job, and nothing where the JobSet has changed since it was looked at."""
    server = Server(job_set(1), [node(0)])
    _, said = look(server, of("TrainJob"), SELECTOR, LIMITS, READY)
    own, place = (
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets/train",
        "/spec/replicatedJobs/0/template/spec",
    )

    job_path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/research/trainjobs/train"
    assert [path for method, path, _ in server.calls if "train" in path and method == "GET"][:2] == [job_path, own]
    assert server.calls[-1] == (
        "PATCH",
        own,
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "replace", "path": f"{place}/parallelism", "value": 2},
            {"op": "replace", "path": f"{place}/completions", "value": 2},
        ],
    )
    assert said == "size 1 to 2: asks whether there is room"


def test_a_train_job_in_a_queue_is_left_alone() -> None:
    """Kueue labels the TrainJob alone, in a namespace with a queue for those that name none."""
    job_set_of_it = job_set(1)

    def call(method: str, path: str, _: Any = None) -> Any:
        assert method == "GET"
        if "trainjobs" in path:
            return {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "default"}}, "spec": {}}
        return job_set_of_it

    assert look(call, of("TrainJob"), SELECTOR, LIMITS, READY) == (
        None,
        "leaves the size alone: the job is in a queue of Kueue, whose quota bounds its size",
    )


def test_a_job_of_a_queue_makes_room_for_a_workload_that_waits() -> None:
    """Kueue's workloads are asked for, for a job that may change its size there."""
    labels = {"kueue.x-k8s.io/queue-name": "research"}
    mine = {"uid": "job", "namespace": "research", "labels": labels, "annotations": {ELASTIC: "true"}}
    waiting = workload("other", lacking(("cpu", "usual", "2")))
    server = Server(job(2, metadata=mine), [node(0), node(1)])

    def call(method: str, path: str, body: Any = None) -> Any:
        found = server(method, path, body)
        return {"items": [own(), waiting]} if "/workloads?" in path else found

    due = dataclasses.replace(READY, due={"other/1": 0.0})
    _, said = look(call, of("Job"), SELECTOR, LIMITS, due)

    asked = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads?limit=250"
    assert asked in [path for _, path, _ in server.calls]
    assert said == "size 2 to 1: makes room for another pod"


@pytest.mark.parametrize("end", ["Completed", "Failed"])
def test_a_job_set_that_has_ended_is_left_alone(end: str) -> None:
    """In JobSet's own words for it."""
    status = {"conditions": [{"type": end, "status": "True"}]}
    server = Server(job_set(1) | {"status": status}, [])

    assert look(server, of("TrainJob"), SELECTOR, LIMITS, READY) == (None, "leaves the size alone: the job has ended")


def test_a_job_set_whose_size_does_not_move_is_told_without_its_pods() -> None:
    """JobSet names the whole template in its refusal, variables included; what was remembered still holds."""
    server = Server(job_set(1), [node(0)])

    def call(method: str, path: str, body: Any = None) -> Any:
        if method == "PATCH":
            message = 'spec.replicatedJobs: Invalid value: [{"env": "secret"}]: field is immutable'
            raise OSError(message)
        return server(method, path, body)

    assert look(call, of("TrainJob"), SELECTOR, LIMITS, READY) == (
        READY,
        f"size 1: {FIXED}",
    )


def test_another_refusal_is_the_caller_s() -> None:
    """It is told as it is."""
    server = Server(job_set(1), [node(0)])

    def call(method: str, path: str, body: Any = None) -> Any:
        if method == "PATCH":
            raise FileExistsError
        return server(method, path, body)

    with pytest.raises(FileExistsError):
        look(call, of("TrainJob"), SELECTOR, LIMITS, READY)


def test_nothing_is_set_where_nothing_changes() -> None:
    """A driver that has just started waits before its first step."""
    server = Server(job(1), [node(0)])
    memory, said = look(server, of("Job"), SELECTOR, LIMITS, None)

    assert {call[0] for call in server.calls} == {"GET"}
    assert (memory is not None, said) == (True, "size 1: waits before it asks for more")


def test_a_suspended_job_is_forgotten() -> None:
    """What was remembered of it does not hold any more when it goes on."""
    server = Server(job(1, spec={"parallelism": 1, "suspend": True}), [])

    assert look(server, of("Job"), SELECTOR, LIMITS, READY) == (None, "leaves the size alone: the job is suspended")
    assert len(server.calls) == 1


@pytest.mark.parametrize(("text", "numbers"), [("2:8:2", (2, 4, 6, 8)), ("1:3:1", (1, 2, 3)), ("2,8", (2, 8))])
def test_sizes_are_a_range_or_a_list(text: str, numbers: tuple[int, ...]) -> None:
    """As the manifests write them."""
    assert sizes(text) == numbers
