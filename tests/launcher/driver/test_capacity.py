"""What growth into idle capacity asks the API server, and what it sets."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.launcher.driver.capacity import look, sizes
from elastic_infra.launcher.driver.decision import Limits, Memory
from tests.launcher.driver.test_observation import job, node

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
