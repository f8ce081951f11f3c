"""The launcher's state over HTTP: ``/metrics`` for Prometheus, ``/healthz`` for probes, ``/status`` as JSON.

``metrics`` and ``is_healthy`` are pure; the server is one daemon thread of the agent that reads the newest snapshot.
The server listens only where a port is set; a busy port gives one warning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from .. import log

HEALTHY_SECONDS: Final = 10.0
"""An agent that has not gone round for this long is not healthy."""
MAX_CONNECTIONS: Final = 16
"""Connections at a time: enough for a scraper, two probes and a few people."""
IDLE_SECONDS: Final = 5.0
"""A connection without a request for this long is closed; Prometheus and the kubelet send their request at once."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The agent's state at one moment."""

    node: str
    run_id: str
    phase: str
    generation: int
    attempt: int
    restart_count: int
    """Failures charged to ``max_restarts``."""
    max_restarts: int
    membership_changes: int
    moves: int
    """Generations that this node entered while workers of the job kept their processes."""
    world_size: int
    group_rank: int | None
    nodes: tuple[str, ...]
    """Members of the generation."""
    workers_running: int
    lowest_step: int | None
    highest_step: int | None
    samples: int | None
    """Samples on which the job has trained, over all epochs; None where the script has not said so."""
    checkpoint_step: int | None
    memory_step: int | None
    """The step of the newest snapshot in this node's memory; None where the script has not said so."""
    save_seconds: float | None
    """Seconds that the newest checkpoint took to save; None where the script has not said so."""
    failed_saves: int
    """Checkpoints that could not be saved, by the count of the local worker with the most."""
    restored_step: int | None
    """The step from which the workers went on last; None where they have not said so."""
    restored_from: str
    """Where that state came from, as in ``workers.progress.SOURCES``; empty where it is not known."""
    steps_lost: int
    """Steps that workers of this node had made and that a restore took back."""
    store_connected: bool
    fork_server_ready: bool
    at: float
    """CLOCK_MONOTONIC."""


METRICS: Final[tuple[tuple[str, str, str, Callable[[Snapshot], float | None]], ...]] = (
    ("generation", "gauge", "Number of the current worker group.", lambda seen: seen.generation),
    ("attempt", "gauge", "Starts of the workers before this one, for any cause.", lambda seen: seen.attempt),
    ("restarts_total", "counter", "Failures charged to max_restarts.", lambda seen: seen.restart_count),
    ("restarts_allowed", "gauge", "The restart budget.", lambda seen: seen.max_restarts),
    ("membership_changes_total", "counter", "Nodes that came or went.", lambda seen: seen.membership_changes),
    ("moves_total", "counter", "Changes in which workers kept their processes.", lambda seen: seen.moves),
    ("world_size", "gauge", "Workers of the whole group.", lambda seen: seen.world_size),
    ("nodes", "gauge", "Nodes of the group.", lambda seen: len(seen.nodes)),
    ("workers_running", "gauge", "Workers that run on this node.", lambda seen: seen.workers_running),
    ("step", "gauge", "The highest step a local worker reported.", lambda seen: seen.highest_step),
    ("checkpoint_step", "gauge", "The newest step reported as saved.", lambda seen: seen.checkpoint_step),
    ("memory_step", "gauge", "The newest step with a snapshot in this node's memory.", lambda seen: seen.memory_step),
    # No counter: a restore takes samples back.
    ("samples", "gauge", "Samples on which the job has trained, over all epochs.", lambda seen: seen.samples),
    ("save_seconds", "gauge", "Time that the newest checkpoint took to save.", lambda seen: seen.save_seconds),
    ("failed_saves_total", "counter", "Checkpoints that could not be saved.", lambda seen: seen.failed_saves),
    ("restored_step", "gauge", "The step from which the workers went on last.", lambda seen: seen.restored_step),
    ("steps_lost_total", "counter", "Steps that a restore took back.", lambda seen: seen.steps_lost),
    ("store_connected", "gauge", "Whether the store answers.", lambda seen: int(seen.store_connected)),
    ("fork_server_ready", "gauge", "Whether a restart can fork.", lambda seen: int(seen.fork_server_ready)),
)


def metrics(seen: Snapshot) -> str:
    """Prometheus text; values that are not known yet are left out."""
    lines = []
    for name, kind, text, read in METRICS:
        value = read(seen)
        if value is not None:
            full = f"elastic_infra_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full} {value:.15g}"]
    lines += ["# HELP elastic_infra_phase The agent's phase.", "# TYPE elastic_infra_phase gauge"]
    lines.append(f'elastic_infra_phase{{phase="{seen.phase}"}} 1')
    if seen.restored_from:
        lines.append(
            "# HELP elastic_infra_restored_from Where the state came from with which the workers went on last."
        )
        lines.append("# TYPE elastic_infra_restored_from gauge")
        lines.append(f'elastic_infra_restored_from{{source="{seen.restored_from}"}} 1')
    return "\n".join(lines) + "\n"


def is_healthy(seen: Snapshot, now: float) -> bool:
    """Whether the agent has moved lately."""
    return now - seen.at < HEALTHY_SECONDS


def answer(path: str, seen: Snapshot | None, now: float) -> tuple[int, str, str]:
    """Status code, content type and body for a request."""
    if seen is None:
        return 503, "text/plain", "starting\n"
    if path == "/metrics":
        return 200, "text/plain; version=0.0.4", metrics(seen)
    if path == "/healthz":
        return (200, "text/plain", "ok\n") if is_healthy(seen, now) else (503, "text/plain", "the agent is stuck\n")
    if path == "/status":
        return 200, "application/json", json.dumps(dataclasses.asdict(seen)) + "\n"
    return 404, "text/plain", "try /metrics, /healthz or /status\n"


class _Standing:
    """The open connections, shared by several threads: a connection beyond the bound ends the oldest."""

    def __init__(self) -> None:
        self._connections: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def add(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end and closes it
            self._connections[connection] = None

    def remove(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)


def serve(port: int, read: Callable[[], Snapshot | None]) -> int:
    """Answer requests from daemon threads; returns the port, or 0 with one warning when it is taken.

    At most ``MAX_CONNECTIONS`` are open at a time, and none for longer than ``IDLE_SECONDS`` without a request, so that
    clients cannot use up the agent's descriptors. A new connection replaces the oldest one, so that probes are answered
    while other clients hold connections.
    """
    import http.server

    standing = _Standing()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = IDLE_SECONDS

        def do_GET(self) -> None:
            code, kind, body = answer(self.path.partition("?")[0], read(), time.monotonic())
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the base class names it
            """Log no line for a request."""

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128  # the default backlog of 5 would fill up in a crowd and leave no place to a probe

        def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  a socket
            standing.add(request)
            super().process_request(request, client_address)

        def close_request(self, request: Any) -> None:  # noqa: ANN401  a socket
            standing.remove(request)
            super().close_request(request)

        def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  a socket
            if not isinstance(sys.exc_info()[1], OSError):  # a client that closed its connection gives no line
                super().handle_error(request, client_address)

    try:
        server = Server(("", port), Handler)
    except OSError as error:
        log.say(f"status port {port}: {error.strerror}; going on without.")
        return 0
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return int(server.server_address[1])
