"""The message of a job's end: what it says, and what becomes of it at servers of every kind."""

from __future__ import annotations

import json

import pytest

from elastic_infra.launcher.agent import webhook
from elastic_infra.launcher.protocol.records import Budget, Cause, Generation
from tests.launcher import hooks
from tests.ports import free_port

FAILED = Generation(
    3,
    "final",
    cause=Cause("worker_failed", "pod-1", rank=2, exit_code=1, step=70, message="ValueError: nan"),
    budget=Budget(charged=4),
    exit_code=1,
    ended_at=86_400,
)


@pytest.fixture(autouse=True)
def _directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def deliver(url: str, seconds: float = 60.0) -> str:
    return webhook.Delivery(url, {"job": "j"}, pause_seconds=0.01).wait(seconds)


def test_a_failure_is_told_with_its_cause() -> None:
    """Which job, how and when it ended, and the worker that was at fault."""
    assert json.loads(json.dumps(webhook.message("train-1f", FAILED))) == {
        "text": "train-1f failed (exit code 1) after 4 restarts: ValueError: nan",
        "job": "train-1f",
        "outcome": "failed",
        "exit_code": 1,
        "generation": 3,
        "restarts": 4,
        "cause": {
            "kind": "worker_failed",
            "node": "pod-1",
            "rank": 2,
            "exit_code": 1,
            "step": 70,
            "message": "ValueError: nan",
        },
        "ended_at": "1970-01-02T00:00:00.000Z",
    }


def test_a_success_has_no_cause() -> None:
    """The node that ended the job is no cause of anything."""
    told = webhook.message("train-1f", Generation(1, "final", cause=Cause("succeeded", "pod-0"), exit_code=0))

    assert (told["outcome"], told["exit_code"], told["cause"]) == ("succeeded", 0, None)
    assert told["text"] == "train-1f succeeded (exit code 0) after 0 restarts"


@pytest.mark.parametrize(
    ("codes", "tries", "trouble"),
    [
        ((200,), 1, ""),
        ((204,), 1, ""),
        ((503, 429, 200), 3, ""),
        ((500,), 3, "it was answered with 500"),
        ((404, 200), 1, "it was answered with 404"),
        ((302, 200), 1, "it was answered with 302"),
    ],
)
def test_a_server_that_is_busy_is_asked_again(codes: tuple[int, ...], tries: int, trouble: str) -> None:
    """Three times at most; one that refuses is not, and a redirection leads nowhere."""
    with hooks.serving(*codes) as server:
        assert deliver(server.url) == trouble
        assert server.bodies == [{"job": "j"}] * tries
        assert set(server.content_types) == {"application/json"}


def test_a_secret_that_was_made_of_a_file_ends_with_a_new_line() -> None:
    """The URL without it is what its owner means."""
    with hooks.serving(200) as server:
        assert deliver(f"{server.url}\n") == ""


@pytest.mark.parametrize(
    ("url", "trouble"),
    [
        ("http://127.0.0.1:{port}/secret", "Connection refused"),
        ("http://127.0.0.1:{port}/secret\nwith a line", "InvalidURL"),
        ("http://127.0.0.1:secret", "InvalidURL"),
        ("http://[secret", "ValueError"),
        ("file:///etc/secret", "its URL does not begin with http:// or https://"),
        ("secret", "its URL does not begin with http:// or https://"),
    ],
)
def test_what_went_wrong_never_quotes_the_url(url: str, trouble: str) -> None:
    """It may hold a password."""
    assert deliver(url.format(port=free_port())) == trouble


def test_a_server_that_does_not_answer_is_waited_for_within_bounds() -> None:
    """The end of the launch waits no longer than it was told to."""
    with hooks.serving(200) as server:
        server.answering.clear()
        assert deliver(server.url, 0.05) == "it was not answered in time"
