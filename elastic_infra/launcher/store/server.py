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
import math
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
from .connection import Chunk, Connection, Held
from .feed import Feed
from .keyspace import Encoded, Keyspace, Notice, Presence, RefusedError, State, key_of, value_of, version_of

HELLO_SECONDS: Final = 10.0
"""A connection that has not said hello by then is closed."""
KEEP_SECONDS: Final[Mapping[State, float]] = {"ended": 600.0, "disconnected": 86_400.0, "silent": 86_400.0}
"""The record of a node stays this long after its end, for peers that still settle its generation. A disconnected node
may train on until its orphan timeout, and without its record the node would count as dead."""
RECONNECT_SECONDS: Final = 1.0
"""A node that lost its connection has another one by then, unless the node is gone."""
MAX_CONNECTIONS: Final = 20_100
"""Two for each node of the largest job, since a node closes its former connection once another one stands, and some
for those that are of no job yet."""
SPARE_DESCRIPTORS: Final = 32
"""Descriptors that connections leave to the listener, the selector and the interpreter."""
BACKLOG_BYTES: Final = 1 << 20
"""Bytes of unread notices of one connection; beyond this the connection gets a snapshot instead."""
BUFFERED_BYTES: Final = 32 << 20
"""Bytes that all connections together have not read, or have sent of incomplete messages."""
STORED_BYTES: Final = 32 << 20
"""Memory of all jobs' values: ten thousand nodes take a third of it."""
SAY_SECONDS: Final = 10.0
"""At most one line in this time about a fault of the server itself."""
TICK_SECONDS: Final = 0.25
GATHER_SECONDS: Final = 0.1
"""Notices are gathered for as long as it took to send the last ones to all readers, and this long at most, so that a
thousand nodes that all say something get a few large messages."""
CROWD: Final = 64
"""With so many connections of a job what all of them get is packed where it is long: a record costs 20 bytes then."""
PACKED_BYTES: Final = 1 << 11
"""Shorter messages are never packed."""
BACKLOG: Final = 4096
"""Connections that the kernel completes before they are accepted: all nodes of a job come at once."""
ACCEPTS: Final = 64
"""New connections of one round."""
OPEN: Final = (
    "store: no token is set, so every client that reaches this port can end or take over the jobs. "
    "Give the store and every node the same ELASTIC_INFRA_STORE_TOKEN, or let only the job's nodes reach the port."
)
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


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
        self._feeds: dict[str, Feed] = {}
        self._untold: dict[str, Feed] = {}
        """Jobs with notices to be sent, or with connections that wait for a snapshot."""
        self._held = Held()
        self._beat = Chunk(wire.BEAT, self._held)
        self._unsent: dict[Connection, None] = {}
        """Connections with answers in this round: one system call sends all of them."""
        self._is_telling = False
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
        now = self._clock()
        waits = [max(0.0, feed.due - now) for feed in self._untold.values()]
        for key, events in self._selector.select(min([timeout, *waits])):
            if key.fileobj is self._listener:
                self._accept()
                continue
            connection = self._connections.get(key.fileobj)  # type: ignore[call-overload]  # a socket
            if connection is not None:
                self._attend(connection, events)
        now = self._clock()
        self._send_due(now)
        if now - self._ticked >= TICK_SECONDS:
            self._tick(now)
            self._send_due(now)

    def _send_due(self, now: float) -> None:
        """Send the notices that were gathered for long enough, and the answers that wait for none."""
        for job in [job for job, feed in self._untold.items() if now >= feed.due]:
            self._tell(job)
        unsent, self._unsent = self._unsent, {}
        for connection in unsent:
            self._attend(connection, selectors.EVENT_WRITE)

    def _tell(self, job: str) -> None:
        """Send a job's notices to all that read them, and a snapshot to the connections that wait for one."""
        feed = self._untold.get(job)
        if feed is None or self._is_telling:
            return
        self._is_telling, began = True, self._clock()
        del self._untold[job]
        data = feed.take()
        if _is_worth_packing(feed, data):
            data = wire.encode({"event": "notices", "packed": wire.pack(data)})
        notices = Chunk(data, self._held)
        for reader in [*feed.readers]:
            if reader not in feed.readers:  # it was the largest holder of memory, and is ended
                continue
            if reader.backlog and reader.backlog + len(notices.data) > BACKLOG_BYTES:
                reader.is_behind = True
                del feed.readers[reader]
            elif notices.data:
                reader.put(notices)
            self._attend(reader, selectors.EVENT_WRITE)
        self._welcome(job, feed)
        ended = self._clock()
        feed.due = ended + min(ended - began, GATHER_SECONDS)
        self._is_telling = False

    def _welcome(self, job: str, feed: Feed) -> None:
        if not feed.newcomers:
            return
        members = self._keyspaces[job].snapshot(self._clock())
        if _is_worth_packing(feed, members):
            members = b'"packed":"%b"' % wire.pack(b"{%b}" % members).encode()
        snapshot = Chunk(b",%b}\n" % members, self._held)
        newcomers, feed.newcomers, head = feed.newcomers, {}, self._head()
        for connection, front in newcomers.items():
            if connection.socket in self._connections:
                connection.put(Chunk(wire.to_json({**front, **head})[:-1], self._held))
                connection.put(snapshot)
                feed.readers[connection] = None
                self._attend(connection, selectors.EVENT_WRITE)

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
            self._forget(job)

    def _forget(self, job: str) -> Keyspace:
        self._feeds.pop(job, None)
        self._untold.pop(job, None)
        return self._keyspaces.pop(job)

    def _left_jobs(self) -> list[str]:
        """Jobs to which no client is connected, the one that was left first in front."""
        connected = {connection.job for connection in self._connections.values()}
        left = (job for job in self._keyspaces if job not in connected)
        return sorted(left, key=lambda job: self._keyspaces[job].left)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                end, _ = self._listener.accept()
            except OSError:
                return  # there is no other, it is gone again, or descriptors are short, which the next one shows
            if self._has_place():
                self._take(end)
            else:
                end.close()

    def _take(self, end: socket.socket) -> None:
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
        beats = len(data) // len(wire.BEAT)
        if data == wire.BEAT * beats and connection.presence is not None and not connection.lines:
            self._hear(connection, connection.presence, beats)
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
        reply: dict[str, object] = {"id": request["id"]} if "id" in request else {}
        try:
            if connection.job is None:
                self._hello(connection, request, reply)
                return
            reply |= self._reply(connection, connection.job, request)
        except RefusedError as error:
            reply["error"] = f"{error}."
        self._send(connection, reply)
        if connection.job is None:
            self._drop(connection)

    def _hear(self, connection: Connection, presence: Presence, beats: int) -> None:
        """Answer beats, the most frequent message, at little cost: with the same bytes.

        Several have come at once where a round took longer than a second, which is when the cost matters most.
        """
        presence.heard = self._clock()
        if presence.state != "live" and connection.job is not None:
            self._notify(connection.job, self._keyspaces[connection.job].heard(connection.node, presence.heard))
        connection.put(self._beat if beats == 1 else Chunk(wire.BEAT * beats, self._held))
        self._flush(connection)

    def _reply(self, connection: Connection, job: str, request: Mapping[str, object]) -> dict[str, object]:
        operation, keyspace = request.get("op"), self._keyspaces[job]
        if connection.node:
            self._become_current(job, connection)
            self._notify(job, keyspace.heard(connection.node, self._clock()))
        if operation == "beat":
            return {} if "id" in request else {"op": "beat"}
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

    def _hello(self, connection: Connection, request: Mapping[str, object], front: dict[str, object]) -> None:
        """Accept a client, which gets all keys of its job behind the members ``front`` of the answer."""
        job, node, token = request.get("job"), request.get("node", ""), request.get("token", "")
        if request.get("op") != "hello" or not (isinstance(job, str) and isinstance(node, str)):
            message = "a connection begins with hello"
            raise RefusedError(message)
        if self._token and not (isinstance(token, str) and self._is_right(token)):
            message = "the token is wrong"
            raise RefusedError(message)
        keyspace = self._keyspaces.setdefault(job, Keyspace())
        self._feeds.setdefault(job, Feed(self._held))
        if node:
            self._notify(job, keyspace.heard(node, self._clock()))
        connection.job, connection.node = job, node
        connection.lines.longest = wire.MAX_LINE
        self._await_snapshot(connection, job, front)

    def _await_snapshot(self, connection: Connection, job: str, front: dict[str, object]) -> None:
        self._feeds[job].newcomers[connection] = front
        self._untold[job] = self._feeds[job]

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
            excess -= self._forget(job).memory
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
        connection.presence = self._keyspaces[job].presences.get(connection.node)
        if former is not None:
            self._drop(former)

    def _notify(self, job: str, notices: list[Notice]) -> None:
        feed = self._feeds[job]
        if not (notices and feed.readers):
            return
        for notice in notices:
            feed.add(notice)
        self._untold[job] = feed
        if feed.size > BACKLOG_BYTES:
            self._tell(job)
        self._limit_gathered()

    def _send(self, connection: Connection, answer: dict[str, object]) -> None:
        """Send an answer at the end of this round, but large ones at once, so that only unread bytes count as such."""
        if connection.socket not in self._connections:
            return
        connection.answers += wire.encode(answer)
        self._count(connection)
        self._unsent[connection] = None
        if len(connection.answers) > BACKLOG_BYTES:
            self._tell(connection.job or "")
            self._flush(connection)
        self._limit_gathered()

    def _limit_gathered(self) -> None:
        if self._held.size > BUFFERED_BYTES // 2 and not self._is_telling:
            self._send_due(math.inf)

    def _flush(self, connection: Connection) -> None:
        if connection.socket not in self._connections:
            return
        if connection.answers and self._may_answer(connection):
            connection.put(Chunk(bytes(connection.answers), self._held))
            connection.answers.clear()
        connection.send()
        if connection.is_behind and not connection.backlog:
            connection.is_behind = False
            self._await_snapshot(connection, connection.job or "", {"event": "snapshot"})
        self._count(connection)
        if connection.socket not in self._connections:
            return
        awaits = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.backlog else 0)
        if awaits != connection.awaits:
            connection.awaits = awaits
            self._selector.modify(connection.socket, awaits)

    def _may_answer(self, connection: Connection) -> bool:
        """Whether no notice comes before the answers: a client reads a change before the answer that reports it."""
        job = connection.job
        if job is None or connection.is_behind:
            return True
        return (self._is_telling or job not in self._untold) and connection not in self._feeds[job].newcomers

    def _count(self, connection: Connection) -> None:
        """Keep the sum of the bytes that all connections hold; beyond the bound the largest holder is ended."""
        if connection.socket not in self._connections:
            return
        unread = connection.unread
        self._held.size += unread - connection.counted
        connection.counted = unread
        while self._held.size > BUFFERED_BYTES and self._connections:
            self._drop(max(self._connections.values(), key=lambda each: each.buffered))

    def _drop(self, connection: Connection) -> None:
        """Close a connection; a node without another one is disconnected."""
        if connection.socket not in self._connections:
            return
        connection.put(Chunk(bytes(connection.answers), self._held))  # the last one, such as the reason of a refusal
        connection.send()
        connection.forget()
        del self._connections[connection.socket]
        self._unsent.pop(connection, None)
        if connection.job is not None:
            self._feeds[connection.job].readers.pop(connection, None)
            self._feeds[connection.job].newcomers.pop(connection, None)
        self._held.size -= connection.counted
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


def _is_worth_packing(feed: Feed, data: bytes) -> bool:
    return len(data) >= PACKED_BYTES and len(feed.readers) + len(feed.newcomers) >= CROWD


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
        return socket.create_server(("::1" if host == "::1" else "127.0.0.1", port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=BACKLOG)


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
