"""The driver's tasks with a store and an API server."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from elastic_infra.launcher.driver.__main__ import MOST_NOTES, Teller
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


class Said:
    """Records in place of a store's."""

    def __init__(self, *found: Generation) -> None:
        self.found = list(found)
        self.trouble = ""

    def within(self, _: float) -> list[Generation]:
        """Each record is found once, without waiting."""
        found, self.found = self.found, []
        return found


@pytest.fixture
def server() -> Server:
    """An API server without events."""
    return Server()


def teller(server: Server, *found: Generation, monkeypatch: pytest.MonkeyPatch) -> Teller:
    """What tells of these records."""
    given = argparse.Namespace(kind="Job", namespace="research", name="train", run="train-1f", port="1")
    told = Teller(server, given)
    monkeypatch.setattr(told, "_records", Said(*found))
    return told


BROKEN = Generation(1, "broken", cause=Cause("node_lost", "train-1"))
AFTER = Generation(2, cause=Cause("node_lost", "train-1"))
END = Generation(2, "final", cause=Cause("succeeded", "train-0"), exit_code=0)


def test_each_failure_and_the_end_are_told_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver that starts anew sees the last record again, and the API server has the event."""
    for found in ((BROKEN, AFTER, END), (END,)):
        teller(server, *found, monkeypatch=monkeypatch).tell(0)

    assert [each["reason"] for each in server.events.values()] == ["NodeLost", "TrainingSucceeded"]
    assert {path for method, path in server.calls if method == "POST"} == {"/api/v1/namespaces/research/events"}
    assert capsys.readouterr().out.splitlines() == [
        "events: NodeLost: Generation 1 has ended, because train-1 was lost.",
        "events: TrainingSucceeded: The training has succeeded after 0 restarts.",
    ]


def test_what_the_api_server_does_not_take_is_told_later(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The latest are kept, in a bounded number, and one line says why nothing is told."""
    many = [Generation(n, cause=Cause("node_lost", "train-1")) for n in range(1, MOST_NOTES + 20)]
    told, server.refusal = teller(server, *many, monkeypatch=monkeypatch), OSError("events is forbidden")
    told.tell(0)
    told.tell(0)
    server.refusal = None
    told.tell(0)

    assert len(server.events) == MOST_NOTES
    assert capsys.readouterr().out.count("is forbidden") == 1


def test_nothing_is_told_of_a_job_that_is_gone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later job of the same name did not fail."""
    told, server.refusal = teller(server, END, monkeypatch=monkeypatch), FileNotFoundError("not found")
    told.tell(0)
    server.refusal = None
    told.tell(0)

    assert server.events == {}
