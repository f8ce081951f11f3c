"""How the API server is asked, with a server that answers in its place."""

from __future__ import annotations

import json
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from elastic_infra.launcher.driver import api_server


class Handler(BaseHTTPRequestHandler):
    """Answers with the code that the path ends in, and the request's headers."""

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size).decode()
        told = {"message": "the reason", "kind": self.headers["Content-Type"], "who": self.headers["Authorization"]}
        content = json.dumps({**told, "body": body}).encode()
        self.send_response(int(self.path[-3:]))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815 - the base class's names

    def log_message(self, *_: object) -> None:
        """Leave the output to the tests."""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[api_server.Call]:
    """The API server without TLS, of which a test has no certificate."""
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: cafile)
    monkeypatch.setattr(api_server, "HTTPSConnection", lambda host, port, **_: HTTPConnection(host, port, timeout=9))
    (tmp_path / "token").write_text("first")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield api_server.api("127.0.0.1", str(server.server_address[1]), tmp_path)
        server.shutdown()
        thread.join()


def test_a_change_says_what_its_body_is(call: api_server.Call, tmp_path: Path) -> None:
    """A patch is merged, or a list of changes; anything else is JSON.

    The token is read each time, for the kubelet renews it.
    """
    patched: Any = call("PATCH", "/200", {"a": 1})
    (tmp_path / "token").write_text("second")
    posted: Any = call("POST", "/201", {"a": 1})
    listed: Any = call("PATCH", "/200", [{"op": "replace"}])

    assert (patched["kind"], patched["who"]) == ("application/merge-patch+json", "Bearer first")
    assert (posted["kind"], posted["who"]) == ("application/json", "Bearer second")
    assert listed["kind"] == "application/json-patch+json"
    assert posted["body"] == '{"a": 1}'


@pytest.mark.parametrize(("code", "error"), [(404, FileNotFoundError), (409, FileExistsError), (403, OSError)])
def test_a_refusal_is_an_error_with_its_reason(call: api_server.Call, code: int, error: type[OSError]) -> None:
    """What is missing and what exists already are told from the rest."""
    with pytest.raises(OSError, match="the reason") as raised:
        call("GET", f"/{code}")

    assert type(raised.value) is error


class Pages:
    """A list of pods, of which an answer has a few."""

    def __init__(self, pods: int) -> None:
        self.pods, self.asked = pods, list[str]()

    def __call__(self, method: str, path: str) -> Any:
        assert method == "GET"
        self.asked.append(path)
        query = parse_qs(urlsplit(path).query)
        begin, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        found = range(begin, min(begin + limit, self.pods))
        further = {"continue": str(found.stop)} if found.stop < self.pods else {}
        return {"items": [_pod(number) for number in found], "metadata": further}


def _pod(number: int) -> dict[str, Any]:
    env = [{"name": f"V{index}", "value": f"{number}-{index}"} for index in range(40)]
    metadata = {"name": f"train-{number}", "managedFields": [{"fieldsV1": {f"f:{index}": {} for index in range(60)}}]}
    return {"metadata": metadata, "spec": {"nodeName": f"gpu-{number}", "containers": [{"name": "t", "env": env}]}}


def _peak(function: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_pods_of_a_large_job_are_not_in_memory_at_once() -> None:
    """Two thousand pods would be more than the driver's limit: an answer has a part of them, and a pod what is used."""
    server = Pages(2000)
    at_once = _peak(lambda: [_pod(number) for number in range(2000)])
    peak = _peak(lambda: [*api_server.listed(server, "/pods", labelSelector="a=b")])

    assert peak < at_once / 3
    assert len(server.asked) == 8
    assert server.asked[:2] == [
        "/pods?labelSelector=a%3Db&limit=250",
        "/pods?labelSelector=a%3Db&limit=250&continue=250",
    ]
    assert [pod["metadata"]["name"] for pod in api_server.listed(server, "/")] == [f"train-{n}" for n in range(2000)]
    assert next(api_server.listed(server, "/pods")) == {
        "metadata": {"name": "train-0"},
        "spec": {"nodeName": "gpu-0", "containers": [{"name": "t"}]},
    }
