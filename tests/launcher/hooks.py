"""A web server on loopback that takes a webhook's messages, with the answers that a test gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/hooks/a-secret-part"


class Server(ThreadingHTTPServer):
    """Keeps each message, and answers with one code after the other; the last one stays."""

    daemon_threads = True

    def __init__(self, *codes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.codes = list(codes)
        self.bodies: list[Any] = []
        self.content_types: list[str | None] = []
        self.answering = threading.Event()
        self.answering.set()

    @property
    def url(self) -> str:
        """Where it takes messages."""
        return f"http://127.0.0.1:{self.server_address[1]}{PATH}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(json.loads(body))
        self.server.content_types.append(self.headers["Content-Type"])
        self.server.answering.wait()
        code = self.server.codes.pop(0) if len(self.server.codes) > 1 else self.server.codes[0]
        self.send_response(code)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Leave the output to the tests."""


@contextmanager
def serving(*codes: int) -> Iterator[Server]:
    """A server for a while."""
    with Server(*codes) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.answering.set()
            server.shutdown()
            thread.join()
