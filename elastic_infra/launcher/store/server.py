"""The store's server: one thread, one selector, JSON lines; no client's input ends the server or fills its memory.

A connection says ``hello`` first (job, node, token) and then gets all keys of its job, and every change as it happens.
One connection a node: a later one replaces the former. A node that stopped beating is silent, a node whose connection
ended is disconnected, and a node whose supervisor said farewell has ended: only the farewell proves that it is dead.

The memory that clients can take has bounds: values ``STORED_BYTES``, unsent and unread bytes ``BUFFERED_BYTES``, 64 MB
together. A connection that has not said hello may send one short line. A connection that does not read gets no more
notices beyond ``BACKLOG_BYTES``, and a fresh snapshot once it has read those.
"""

from __future__ import annotations

import contextlib
import hmac
import resource
import secrets
import selectors
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from . import wire
from .keyspace import Encoded, Keyspace, Notice, RefusedError, State, key_of, value_of, version_of

HELLO_SECONDS: Final = 10.0
"""A connection that has not said hello by then is closed."""
KEEP_SECONDS: Final[Mapping[State, float]] = {"ended": 600.0, "disconnected": 86_400.0, "silent": 86_400.0}
"""The record of a node stays this long after its end, for peers that still settle its generation. A disconnected node
may train on until its orphan timeout, and without its record the node would count as dead."""
RECONNECT_SECONDS: Final = 1.0
"""A node that lost its connection has another one by then, unless the node is gone."""
MAX_CONNECTIONS: Final = 4096
SPARE_DESCRIPTORS: Final = 32
"""Descriptors that connections leave to the listener, the selector and the interpreter."""
HELLO_BYTES: Final = 4096
"""The longest hello: 4096 connections without one hold 16 MB together."""
BACKLOG_BYTES: Final = 1 << 20
"""Bytes of unread notices of one connection; beyond this the connection gets a snapshot instead."""
BUFFERED_BYTES: Final = 32 << 20
"""Bytes that all connections together have not read, or have sent of incomplete messages."""
STORED_BYTES: Final = 32 << 20
"""Memory of all jobs' values: ten thousand nodes take a third of it."""
SAY_SECONDS: Final = 10.0
"""At most one line in this time about a fault of the server itself."""
TICK_SECONDS: Final = 0.25
OPEN: Final = (
    "store: no token is set, so every client that reaches this port can end or take over the jobs. "
    "Give the store and every node the same ELASTIC_INFRA_STORE_TOKEN, or let only the job's nodes reach the port."
)
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


class Connection:
    """One client, introduced or not."""

    def __init__(self, end: socket.socket, now: float) -> None:
        self.socket = end
        self.lines = wire.Lines(HELLO_BYTES)
        self.out = bytearray()
        self.counted = 0
        """Bytes of this connection in the server's sum."""
        self.awaits = selectors.EVENT_READ
        """The selector's events for this connection."""
        self.is_behind = False
        """Whether notices were left out: a snapshot is due once the connection has read all earlier bytes."""
        self.since = now
        self.job: str | None = None
        self.node = ""

    @property
    def buffered(self) -> int:
        """Bytes that this connection holds in memory."""
        return len(self.out) + len(self.lines)


class Server:
    """All jobs of one port."""

    def __init__(self, listener: socket.socket, token: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.incarnation = secrets.token_hex(8)
        self.places = _places()
        """Connections at a time."""
        self.faults = 0
        """Connections ended by a fault of the server itself."""
        self._listener = listener
        self._token = token
        self._clock = clock
        self._keyspaces: dict[str, Keyspace] = {}
        self._connections: dict[socket.socket, Connection] = {}
        self._nodes: dict[tuple[str, str], Connection] = {}
        self._buffered = 0
        self._unsent: dict[Connection, None] = {}
        """Connections with output in this round: one system call sends all of it."""
        self._is_flushing = False
        self._said_at = -SAY_SECONDS
        self._selector = selectors.DefaultSelector()
        self._ticked = clock()
        listener.settimeout(0)
        self._selector.register(listener, selectors.EVENT_READ)

    def is_done(self) -> bool:
        """Whether every job is over and all its nodes have read the end and gone."""
        now, keyspaces = self._clock(), self._keyspaces.values()
        if not keyspaces or self._nodes or not all(_is_over(keyspace) for keyspace in keyspaces):
            return False
        return not any(keyspace.awaits(now, RECONNECT_SECONDS) for keyspace in keyspaces)

    def close(self) -> None:
        """Close every connection and the listener."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()
        self._listener.close()

    def serve_once(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for connections that are ready, and serve them."""
        for key, events in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
                continue
            connection = self._connections.get(key.fileobj)  # type: ignore[call-overload]  # a socket
            if connection is not None:
                self._attend(connection, events)
        self._flush_all()
        now = self._clock()
        if now - self._ticked >= TICK_SECONDS:
            self._tick(now)
            self._flush_all()

    def _flush_all(self) -> None:
        if self._is_flushing:
            return
        self._is_flushing = True
        while self._unsent:
            connection, _ = self._unsent.popitem()
            self._attend(connection, selectors.EVENT_WRITE)
        self._is_flushing = False

    def _attend(self, connection: Connection, events: int) -> None:
        """Write and read without blocking; a fault ends this connection and no other."""
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(connection)
            if events & selectors.EVENT_READ:
                self._read(connection)
        except Exception as error:  # noqa: BLE001  one client's bytes must not end all jobs, whatever the fault
            self.faults += 1
            self._drop(connection)
            if self._clock() - self._said_at >= SAY_SECONDS:
                self._said_at = self._clock()
                frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
                where = f"{frame.f_code.co_name}, line {line}"  # without the error's text, which may quote a client
                print(f"store: {type(error).__name__} in {where} ended a connection.", file=sys.stderr, flush=True)

    def _tick(self, now: float) -> None:
        if now - self._ticked > wire.SILENCE_SECONDS / 2:  # this process was stopped: no beat could be read
            presences = [each for keyspace in self._keyspaces.values() for each in keyspace.presences.values()]
            for presence in presences:
                presence.heard = max(presence.heard, now)
        self._ticked = now
        connected = {(connection.job, connection.node) for connection in self._connections.values()}
        for job, keyspace in self._keyspaces.items():
            here = {node for node in keyspace.presences if (job, node) in connected}
            silent = keyspace.grow_silent(now, wire.SILENCE_SECONDS)
            self._notify(job, silent + keyspace.forget(now, KEEP_SECONDS, here))
        late = now - HELLO_SECONDS
        for connection in [each for each in self._connections.values() if each.job is None and each.since < late]:
            self._drop(connection)
        for job in [job for job in self._left_jobs() if self._keyspaces[job].is_empty]:
            del self._keyspaces[job]

    def _left_jobs(self) -> list[str]:
        """Jobs to which no client is connected, the one that was left first in front."""
        connected = {connection.job for connection in self._connections.values()}
        left = (job for job in self._keyspaces if job not in connected)
        return sorted(left, key=lambda job: self._keyspaces[job].left)

    def _accept(self) -> None:
        try:
            end, _ = self._listener.accept()
        except OSError:
            return  # the client is gone again, or descriptors are short, which the next connection shows
        if not self._has_place():
            end.close()
            return
        end.settimeout(0)
        with contextlib.suppress(OSError):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[end] = Connection(end, self._clock())
        self._selector.register(end, selectors.EVENT_READ)

    def _has_place(self) -> bool:
        """Whether a new connection has a place; a full server closes the oldest connection without a hello."""
        if len(self._connections) < self.places:
            return True
        oldest = next((each for each in self._connections.values() if each.job is None), None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        try:
            for request in connection.lines.feed(data):
                self._answer(connection, request)
            self._count(connection)
        except wire.WireError as error:
            if connection.node and connection.lines.rest.strip() == wire.FAREWELL.strip():
                self._answer(connection, {"op": "farewell"})  # behind a line that the agent's death cut
                return
            self._send(connection, {"error": f"{error}."})
            self._drop(connection)

    def _answer(self, connection: Connection, request: Mapping[str, object]) -> None:
        if connection.socket not in self._connections:
            return
        members = b""
        try:
            if connection.job is None:
                members = self._hello(connection, request)
                reply = self._head()
            else:
                reply = self._reply(connection, connection.job, request)
        except RefusedError as error:
            reply = {"error": f"{error}."}
        self._send(connection, {"id": request.get("id"), **reply}, members)
        if connection.job is None:
            self._drop(connection)

    def _reply(self, connection: Connection, job: str, request: Mapping[str, object]) -> dict[str, object]:
        operation, keyspace = request.get("op"), self._keyspaces[job]
        if connection.node:
            self._become_current(job, connection)
            self._notify(job, keyspace.heard(connection.node, self._clock()))
        if operation == "beat":
            return {}
        if operation == "farewell":
            self._notify(job, keyspace.ended(connection.node, self._clock()))
            self._drop(connection)
            return {}
        answer, notices = self._change(keyspace, request)
        self._notify(job, notices)
        return answer

    def _change(self, keyspace: Keyspace, request: Mapping[str, object]) -> tuple[dict[str, object], list[Notice]]:
        operation, key = request.get("op"), key_of(request)
        if operation == "get":
            version, value = keyspace.entries.get(key, (0, None))
            return {"version": version, "value": value}, []
        if operation == "delete":
            return {}, keyspace.delete(key)
        if operation == "set":
            encoded = Encoded.of(value_of(request))
            self._make_room(keyspace, key, encoded)
            return {}, keyspace.put(key, encoded)
        if operation == "compare_and_set":
            encoded = Encoded.of(request.get("value"))
            self._make_room(keyspace, key, encoded)
            succeeded, notices = keyspace.compare_and_set(key, encoded, version_of(request))
            return {"succeeded": succeeded}, notices
        message = "the operation is unknown"
        raise RefusedError(message)

    def _hello(self, connection: Connection, request: Mapping[str, object]) -> bytes:
        """Accept a client; returns all keys of its job, as members of the answer."""
        job, node, token = request.get("job"), request.get("node", ""), request.get("token", "")
        if request.get("op") != "hello" or not (isinstance(job, str) and isinstance(node, str)):
            message = "a connection begins with hello"
            raise RefusedError(message)
        if self._token and not (isinstance(token, str) and self._is_right(token)):
            message = "the token is wrong"
            raise RefusedError(message)
        now = self._clock()
        keyspace = self._keyspaces.setdefault(job, Keyspace())
        if node:
            self._notify(job, keyspace.heard(node, now))
        connection.job, connection.node = job, node
        connection.lines.longest = wire.MAX_LINE
        return self._keyspaces[job].snapshot(now)

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode(errors="surrogateescape"))

    def _head(self) -> dict[str, object]:
        """The members of a snapshot about the store itself."""
        return {"incarnation": self.incarnation, "unix_time": time.time()}

    def _make_room(self, keyspace: Keyspace, key: str, encoded: Encoded) -> None:
        """Make room for a value by dropping the jobs that were left longest ago.

        Raises:
            RefusedError: the value does not fit.
        """
        excess = keyspace.growth(key, encoded) + sum(each.memory for each in self._keyspaces.values()) - STORED_BYTES
        for job in self._left_jobs() if excess > 0 else ():
            excess -= self._keyspaces.pop(job).memory
            if excess <= 0:
                return
        if excess > 0:
            message = f"the store is full ({STORED_BYTES >> 20} MB)"
            raise RefusedError(message)

    def _become_current(self, job: str, connection: Connection) -> None:
        """Make a connection its node's current one: its first request after hello shows that it read the answer.

        A client that gave up waiting for the answer leaves connections behind whose end says nothing about the node.
        """
        former = self._nodes.get((job, connection.node))
        if former is connection:
            return
        self._nodes[job, connection.node] = connection
        if former is not None:
            self._drop(former)

    def _notify(self, job: str, notices: list[Notice]) -> None:
        if not notices:
            return
        data = b"".join(wire.encode(notice) for notice in notices)
        for connection in [c for c in self._connections.values() if c.job == job]:
            if connection in self._unsent and len(connection.out) + len(data) > BACKLOG_BYTES:
                self._flush(connection)
            connection.is_behind |= bool(connection.out) and len(connection.out) + len(data) > BACKLOG_BYTES
            if not connection.is_behind:
                self._send_bytes(connection, data)

    def _send(self, connection: Connection, message: dict[str, object], members: bytes = b"") -> None:
        self._send_bytes(connection, wire.encode(message, members))

    def _send_bytes(self, connection: Connection, data: bytes) -> None:
        """Send at the end of this round, but large output at once, so that only unread bytes count as such."""
        if connection.socket not in self._connections:
            return
        connection.out += data
        connection.counted += len(data)
        self._buffered += len(data)
        self._unsent[connection] = None
        if len(connection.out) > BACKLOG_BYTES:
            self._flush(connection)
        elif self._buffered > BUFFERED_BYTES // 2:
            self._flush_all()

    def _flush(self, connection: Connection) -> None:
        if connection.socket not in self._connections:
            return
        with contextlib.suppress(OSError):  # the next read shows a broken connection
            sent = connection.socket.send(connection.out) if connection.out else 0
            del connection.out[:sent]
        if connection.is_behind and not connection.out:
            connection.is_behind = False
            snapshot = self._keyspaces[connection.job or ""].snapshot(self._clock())
            self._send(connection, {"event": "snapshot", **self._head()}, snapshot)
            return
        self._count(connection)
        if connection.socket not in self._connections:
            return
        awaits = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        if awaits != connection.awaits:
            connection.awaits = awaits
            self._selector.modify(connection.socket, awaits)

    def _count(self, connection: Connection) -> None:
        """Keep the sum of the bytes that all connections hold; beyond the bound the largest holder is ended."""
        if connection.socket not in self._connections:
            return
        self._buffered += connection.buffered - connection.counted
        connection.counted = connection.buffered
        while self._buffered > BUFFERED_BYTES:
            self._drop(max(self._connections.values(), key=lambda each: each.counted))

    def _drop(self, connection: Connection) -> None:
        """Close a connection; a node without another one is disconnected."""
        if connection.socket not in self._connections:
            return
        with contextlib.suppress(OSError):  # the last answer, such as the reason of a refusal
            connection.socket.send(connection.out)
        del self._connections[connection.socket]
        self._unsent.pop(connection, None)
        self._buffered -= connection.counted
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.job is not None:
            self._keyspaces[connection.job].left = self._clock()
        place = (connection.job or "", connection.node)
        if self._nodes.get(place) is not connection:
            return
        del self._nodes[place]
        # A client closes its former connection after the handshake of a new one, so the former's end may be read first.
        newer = [each for each in self._connections.values() if (each.job, each.node) == place]
        if newer:
            self._nodes[place] = newer[-1]
        else:
            self._notify(place[0], self._keyspaces[place[0]].disconnected(connection.node, self._clock()))


def _is_over(keyspace: Keyspace) -> bool:
    """Whether a value is the final record: the server reads stored values only to know when to end itself."""
    value = keyspace.entries.get("gen", (0, None))[1]
    return isinstance(value, Mapping) and value.get("phase") == "final"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket: on loopback where ``host`` names loopback, else on every address, IPv6 included.

    Raises:
        OSError: the port is taken or not allowed.
    """
    if host in _LOOPBACK:
        family = socket.AF_INET6 if host == "::1" else socket.AF_INET
        return socket.create_server(("::1" if host == "::1" else "127.0.0.1", port), family=family, backlog=512)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=512, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=512)


def serve(host: str, port: int, token: str, listening: Callable[[int], None]) -> None:
    """Serve the jobs of one launch until they are over and no client is connected any more.

    ``listening`` is called with the port once it is bound.

    Raises:
        OSError: the port cannot be bound.
    """
    server = _bound(host, port, token, listening)
    while not server.is_done():
        server.serve_once(TICK_SECONDS)


def serve_forever(host: str, port: int, token: str, listening: Callable[[int], None]) -> NoReturn:
    """Serve until the process is ended, whatever happens to the jobs; otherwise as ``serve``."""
    server = _bound(host, port, token, listening)
    while True:
        server.serve_once(TICK_SECONDS)


def _raise_descriptor_limit() -> None:
    """Raise the limit as far as this process may: the usual 1024 is too few for a large job and foreign connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _places() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft - SPARE_DESCRIPTORS)


def _bound(host: str, port: int, token: str, listening: Callable[[int], None]) -> Server:
    _raise_descriptor_limit()
    listener = listen(host, port)
    if not token and host not in _LOOPBACK:
        print(OPEN, file=sys.stderr, flush=True)
    listening(listener.getsockname()[1])
    return Server(listener, token)
