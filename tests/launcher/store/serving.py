"""A server in this process with real sockets: nodes with their links, and bare connections."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from elastic_infra.launcher.store import client, link, server, wire

TOKEN = "secret"


class Served:
    """A server of this process in a thread."""

    def __init__(self, token: str = "", host: str = "localhost", port: int = 0) -> None:
        self.listener = server.listen(host, port)
        self.port = int(self.listener.getsockname()[1])
        self.server = server.Server(self.listener, token)
        self.is_closing = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.is_closing:
            self.server.serve_once(0.05)

    def close(self) -> None:
        """End the server; a second call does nothing."""
        if not self.is_closing:
            self.is_closing = True
            self.thread.join()
            self.server.close()


class Node:
    """A link that keeps its notifications."""

    def __init__(self, port: int, name: str, token: str = TOKEN, host: str = "localhost", job: str = "job") -> None:
        self.link = link.Link(client.Target(host, port, job, name, token))
        self.notifications: list[link.Notification] = []
        self.link.start()

    def wait_for(self, what: Callable[[link.Notification], bool], seconds: float = 20.0) -> link.Notification:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for notification in self.notifications:
                if what(notification):
                    return notification
            select.select([self.link.fileno()], [], [], 0.2)
            self.notifications += self.link.take()
        raise AssertionError(self.notifications)

    def wait_for_kind(self, kind: type) -> link.Notification:
        return self.wait_for(lambda notification: isinstance(notification, kind))

    def close(self) -> None:
        self.link.close()
        for notification in [*self.notifications, *self.link.take()]:
            if isinstance(notification, link.Holding):
                with contextlib.suppress(OSError):
                    os.close(notification.descriptor)


def after_hello(served: Served, node: str, job: str = "job") -> socket.socket:
    """A connection of this node that has said hello and read the answer."""
    end = socket.create_connection(("127.0.0.1", served.port), timeout=10)
    ask(end, {"op": "hello", "id": 0, "job": job, "node": node, "token": TOKEN})
    return end


def ask(end: socket.socket, request: dict[str, object]) -> dict[str, object]:
    """The answer; notices around it are passed over."""
    end.settimeout(20)
    end.sendall(wire.encode(request))
    lines = wire.Lines(wire.MAX_SNAPSHOT)
    while data := end.recv(1 << 18):
        for message in lines.feed(data):
            if message.get("id") == request["id"] and "event" not in message:
                return message
    raise AssertionError(request)


def presence(served: Served, node: str) -> str:
    """A node's presence in the store; the store reads all earlier input before it accepts this question."""
    with before_hello(served) as end:
        presences = ask(end, {"op": "hello", "id": 0, "job": "job", "node": "", "token": TOKEN})["presences"]
    assert isinstance(presences, dict)
    return str(presences[node][0])


def before_hello(served: Served) -> socket.socket:
    """A connection that has not said hello yet."""
    return socket.create_connection(("127.0.0.1", served.port), timeout=10)


def still_serves(served: Served) -> bool:
    """Whether the server accepts a new connection."""
    with after_hello(served, "", "another"):
        return True


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Look repeatedly until the condition holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        time.sleep(0.05)
