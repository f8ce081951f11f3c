"""A real collector of traces: Jaeger, one process that keeps them in memory. `make tools TOOLS=jaeger` builds it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.ports import free_port
from tools import build, modules

PROGRAM: Final = "all-in-one"
RECEIVES: Final = "collector.otlp.http.host-port"
SHOWS: Final = "query.http-server.host-port"
OTHERS: Final = (
    *("collector.otlp.grpc.host-port", "collector.grpc-server.host-port", "collector.http-server.host-port"),
    *("query.grpc-server.host-port", "admin.http.host-port", "http-server.host-port"),
)
"""With these all places at which it listens to TCP."""
DERIVED: Final = frozenset(
    {"span.kind", "otel.status_code", "otel.status_description", "error", "otel.scope.name", "internal.span.format"}
)
"""The tags that it makes of a span's other fields."""
START_SECONDS: Final = 60


class Kept(NamedTuple):
    """What it has of a span; moments and lengths are in microseconds."""

    id: str
    parent: str
    name: str
    begin: int
    length: int
    values: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Jaeger:
    """The addresses at which it takes traces and shows them."""

    receives: str
    shows: str

    def post(self, body: str) -> Any:
        """Its answer to an export request."""
        headers = {"Content-Type": "application/json"}
        return _answer(urllib.request.Request(f"http://{self.receives}/v1/traces", body.encode(), headers))

    def kept(self, trace: str) -> set[Kept]:
        """The spans of a trace."""
        (found,) = _answer(urllib.request.Request(f"http://{self.shows}/api/traces/{trace}"))["data"]
        return {_kept(span) for span in found["spans"]}


@contextlib.contextmanager
def running(log: Path) -> Iterator[Jaeger]:
    """It runs for a while, and forgets all then.

    Raises:
        SetupError: it is not built.
    """
    program = build.program_path(PROGRAM, modules.cache_folder(os.environ, Path.home()), build.go_program())
    places = {name: f"127.0.0.1:{free_port()}" for name in (RECEIVES, SHOWS, *OTHERS)}
    with log.open("w") as output:
        command = [str(program), *(f"--{name}={place}" for name, place in places.items())]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    with process:
        try:
            for name in (RECEIVES, SHOWS):
                _await_listening(process, places[name], log)
            yield Jaeger(places[RECEIVES], places[SHOWS])
        finally:
            process.kill()


def _await_listening(process: subprocess.Popen[bytes], place: str, log: Path) -> None:
    host, _, port = place.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.1)


def _answer(request: urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _kept(span: dict[str, Any]) -> Kept:
    parent = "".join(each["spanID"] for each in span["references"])
    values = frozenset((each["key"], str(each["value"])) for each in span["tags"] if each["key"] not in DERIVED)
    return Kept(span["spanID"], parent, span["operationName"], span["startTime"], span["duration"], values)
