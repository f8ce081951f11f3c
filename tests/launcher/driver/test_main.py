"""The driver's tasks with a store and an API server."""

from __future__ import annotations

import argparse
import os
from typing import Any

import pytest

from elastic_infra.launcher.driver.__main__ import MOST_NOTES, Avoider, Teller
from elastic_infra.launcher.protocol.records import Cause, Generation

UID = "0-1-2"


class Server:
    """Takes events as the API server would, each name once, and refuses while it is told to."""

    def __init__(self) -> None:
        self.events: dict[str, Any] = {}
        self.refusal: OSError | None = None
        self.calls: list[tuple[str, str]] = []

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        self.calls.append((method, path))
        if self.refusal is not None:
            raise self.refusal
        if method == "GET":
            return {"metadata": {"namespace": "research", "name": "train", "uid": UID}}
        if body["metadata"]["name"] in self.events:
            raise FileExistsError(body["metadata"]["name"])
        return self.events.setdefault(body["metadata"]["name"], body)


@pytest.fixture
def server() -> Server:
    """An API server without events."""
    return Server()


GIVEN = argparse.Namespace(kind="Job", namespace="research", name="train", run="train-1f")


def told(server: Server, *found: Generation) -> Teller:
    """What has told of these records."""
    teller = Teller(server, GIVEN)
    for record in found:
        teller.take(record)
        teller.work()
    return teller


FAILED = Cause("worker_failed", "train-1", "u1")
BROKEN = Generation(1, "broken", cause=Cause("node_lost", "train-1"))
AFTER = Generation(2, cause=Cause("node_lost", "train-1"))
END = Generation(2, "final", cause=Cause("succeeded", "train-0"), exit_code=0)


def test_each_failure_and_the_end_are_told_once(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """A driver that starts anew sees the last record again, and the API server has the event."""
    told(server, BROKEN, AFTER, END)
    told(server, END)

    assert [each["reason"] for each in server.events.values()] == ["NodeLost", "TrainingSucceeded"]
    assert {path for method, path in server.calls if method == "POST"} == {"/api/v1/namespaces/research/events"}
    assert capsys.readouterr().out.splitlines() == [
        "events: NodeLost: Generation 1 has ended, because train-1 was lost.",
        "events: TrainingSucceeded: The training has succeeded after 0 restarts.",
    ]


def test_what_the_api_server_does_not_take_is_told_later(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest are kept, in a bounded number, and one line says why nothing is told."""
    server.refusal = OSError("events is forbidden")
    teller = told(server, *[Generation(n, cause=Cause("node_lost", "train-1")) for n in range(1, MOST_NOTES + 20)])
    refused = capsys.readouterr().out
    server.refusal = None
    teller.work()

    assert len(server.events) == MOST_NOTES
    assert refused.count("is forbidden") == 1


def test_nothing_is_told_of_a_job_that_is_gone(server: Server) -> None:
    """A later job of the same name did not fail."""
    server.refusal = FileNotFoundError("not found")
    teller = told(server, END)
    server.refusal = None
    teller.work()

    assert server.events == {}


class Pods:
    """Lists, makes and deletes pods as the API server would."""

    def __init__(self, *found: Any) -> None:
        self.pods = {each["metadata"]["name"]: each for each in found}

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        label = "elastic-infra/avoid" if "avoid%3D" in path else "app.kubernetes.io/instance"
        if method == "POST":
            return self.pods.setdefault(body["metadata"]["name"], body)
        if method == "DELETE":
            return self.pods.pop(path.rpartition("/")[2])
        if "?" in path:
            return {"items": [each for each in self.pods.values() if label in each["metadata"]["labels"]]}
        return {"metadata": {"namespace": "research", "name": "train", "uid": UID}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod of the job."""
    labels = {"app.kubernetes.io/instance": "train"}
    return {"metadata": {"name": name, "labels": labels, "creationTimestamp": "2020-01-01T00:00:00Z"}, "spec": spec}


def test_a_cluster_node_is_avoided_until_the_job_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """The pod that holds it is made at the verdict, once, and deleted at the end."""
    like = {"name": "driver", "image": "i", "imagePullPolicy": "Always", "securityContext": {}}
    driver = pod(os.uname().nodename, containers=[like], securityContext={}, nodeName="cpu-1")
    server = Pods(pod("train-1-x", hostname="train-1", nodeName="gpu-1"), driver)
    avoider = Avoider(server, GIVEN)
    held = []
    for record in (Generation(3), Generation(4, cause=FAILED, evicted="u1"), Generation(4, "final", exit_code=0)):
        avoider.take(record)
        avoider.work()
        held.append(sorted(name for name in server.pods if "avoid" in name))

    assert held == [[], ["train-avoid-0"], []]
    assert capsys.readouterr().out == (
        "avoid: train-1 was left out: train-avoid-0 keeps the job's pods away from gpu-1\n"
    )
