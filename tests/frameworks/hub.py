"""A Hugging Face Hub with one repository, for the real client: what `snapshot_download` asks, and no more.

The paths are those of https://huggingface.co/docs/hub/api.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHA = hashlib.sha1(b"commit", usedforsecurity=False).hexdigest()


class Hub(ThreadingHTTPServer):
    """Serves the files of one revision of one repository, to those who know the token."""

    daemon_threads = True

    def __init__(
        self,
        name: str,
        kind: str,
        files: Mapping[str, bytes],
        token: str = "",
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        super().__init__(address, _Handler)
        prefix = "" if kind == "model" else f"{kind}s/"
        self.api, self.resolve = f"/api/{kind}s/{name}", f"/{prefix}{name}/resolve/{SHA}/"
        self.name, self.files, self.token = name, files, token
        self.fails = False
        self.breaks_after: int | None = None
        """Files that are served before the hub is gone: connections are dropped, and further ones refused."""
        self.served: list[str] = []
        self.lock = threading.Lock()

    def go_away(self) -> None:
        """Refuse what comes; the caller has the lock."""
        if not self.fails:
            self.fails = True
            self.socket.shutdown(socket.SHUT_RDWR)

    def get_request(self) -> tuple[socket.socket, object]:
        """As the base class has it; a socket that was shut down is ready all the time."""
        if self.fails:
            time.sleep(0.1)
        return super().get_request()

    @property
    def url(self) -> str:
        """What `HF_ENDPOINT` is set to."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        with hub.lock:
            if hub.fails:
                self.close_connection = True
                return
        if hub.token and self.headers["Authorization"] != f"Bearer {hub.token}":
            self._answer(401, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "a token is needed"})
        elif path in {hub.api, f"{hub.api}/revision/main", f"{hub.api}/revision/{SHA}"}:
            siblings = [{"rfilename": name} for name in hub.files]
            self._json({"id": hub.name, "sha": SHA, "private": False, "tags": [], "siblings": siblings})
        elif path == f"{hub.api}/tree/{SHA}":
            self._json([_entry(name, content) for name, content in hub.files.items()])
        elif path.startswith(hub.resolve) and (name := path.removeprefix(hub.resolve)) in hub.files:
            self._file(name, hub.files[name])
        else:
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "no such revision"})

    def _file(self, name: str, content: bytes) -> None:
        hub = self.server
        if self.command == "GET":
            with hub.lock:
                hub.served.append(name)
                if hub.breaks_after is not None and len(hub.served) >= hub.breaks_after:
                    hub.go_away()
        self._answer(200, content, {"ETag": f'"{_entry(name, content)["oid"]}"', "X-Repo-Commit": SHA})

    def _json(self, content: object) -> None:
        self._answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _answer(self, code: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Leave the output to the tests."""


def _entry(name: str, content: bytes) -> dict[str, object]:
    oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return {"type": "file", "path": name, "size": len(content), "oid": oid}


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """A hub for a while."""
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
