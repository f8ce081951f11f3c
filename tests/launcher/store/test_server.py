"""The store's server over real sockets and in a separate process: it outlives any input of a client."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_infra.config.elastic import MAX_NODES
from elastic_infra.launcher.protocol import events
from elastic_infra.launcher.store import client, connection, server, wire
from elastic_infra.launcher.store.feed import Feed
from tests.launcher.store.serving import (
    TOKEN,
    Node,
    Served,
    after_hello,
    ask,
    before_hello,
    presence,
    still_serves,
    wait_until,
)

ROOT = pathlib.Path(__file__).resolve().parents[3]
MEGABYTE = 1 << 20


@dataclass
class Process:
    """A store in a separate process."""

    process: subprocess.Popen[str]
    port: int

    def megabytes(self) -> float:
        """Memory that it occupies."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def connect(self, **hello: str) -> socket.socket:
        """A connection that the server has accepted."""
        end = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        assert "incarnation" in ask(end, {"op": "hello", "id": 0, "job": "job", **hello})
        return end


@contextlib.contextmanager
def started(token: str = "", descriptors: int | None = None, host: str = "127.0.0.1") -> Iterator[Process]:
    """A store, open unless there is a token."""
    command = [sys.executable, "-m", "elastic_infra.launcher.store", "--host", host, "--port", "0"]
    if descriptors:  # by a shell: between fork and exec threads of this process, such as gRPC's, can end the child
        command = ["sh", "-c", f'ulimit -S -n {descriptors}; exec "$@"', "sh", *command]
    environ = {**os.environ, "ELASTIC_INFRA_STORE_TOKEN": token}
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Process(process, int(process.stdout.readline().split()[-1]))
        finally:
            process.kill()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
            lambda value: json.dumps(value).encode() + b"\n"
        ),
    )
)
def test_garbage_never_ends_it(served: Served, data: bytes) -> None:
    """After any input of a client without the token, the server goes on answering others."""
    with before_hello(served) as end:
        end.sendall(data + b"\n")
        end.shutdown(socket.SHUT_WR)
        while end.recv(4096):
            pass

    assert still_serves(served)


@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize(
    "line",
    [
        b'{"op":"hello","job":"j","token":"\\ud800"}',
        b'{"op":"hello","job":"\\ud800","node":"\\udfff","token":""}',
        b'{"op":"hello","job":"j","token":' + b"[" * 985 + b"]" * 985 + b"}",
    ],
    ids=["half a character in the token", "half a character in names", "depth"],
)
def test_a_hello_that_cannot_be_encoded_ends_its_connection(token: str, line: bytes) -> None:
    """With a token and without; others are served on."""
    served = Served(token)
    try:
        with before_hello(served) as end:
            end.sendall(line + b"\n")
            assert "error" in json.loads(end.recv(4096))
        assert served.thread.is_alive()
        assert served.server.faults == 0
    finally:
        served.close()


@pytest.mark.parametrize("depth", [wire.MAX_DEPTH, 985, 5000])
def test_a_deep_value_ends_only_its_own_connection(served: Served, depth: int) -> None:
    """A value that can be read but not passed on is refused before another client gets it."""
    with after_hello(served, "a") as other, after_hello(served, "b") as end:
        end.sendall(b'{"op":"set","id":1,"key":"x","value":' + b"[" * depth + b"]" * depth + b"}\n")
        received = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while data := end.recv(4096):
                received += data

        assert b"error" in received
        assert ask(other, {"op": "get", "id": 1, "key": "x"})["value"] is None
        assert served.server.faults == 0


def test_a_connection_that_breaks_the_server_ends_alone(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    """An internal fault ends only the connection that showed it, and is reported without the client's text."""

    def broken(*_: object) -> NoReturn:
        message = "private"
        raise ZeroDivisionError(message)

    with after_hello(served, "a") as other, before_hello(served) as end:
        served.server._hello = broken  # type: ignore[assignment,method-assign]  # the fault
        end.sendall(wire.encode({"op": "hello", "id": 0}))
        assert end.recv(4096) == b""

        assert ask(other, {"op": "beat", "id": 1}) == {"id": 1}
    said = capfd.readouterr().err
    assert "ZeroDivisionError" in said
    assert "private" not in said


def test_oversized_message_is_cut_off(served: Served) -> None:
    """A message beyond the bound ends its connection, and only that."""
    with after_hello(served, "a") as end:
        with contextlib.suppress(OSError):
            for _ in range(wire.MAX_LINE // 65536 + 8):
                end.sendall(b"x" * 65536)
        with contextlib.suppress(ConnectionResetError):
            while end.recv(4096):
                pass
    assert still_serves(served)


def test_before_hello_a_connection_may_send_one_line(served: Served) -> None:
    """Before its hello is accepted, a connection may send one short line: thousands of connections are no load."""
    with before_hello(served) as end:
        end.sendall(b" " * (connection.HELLO_BYTES + 1))
        assert b"longer" in end.recv(4096)


def test_ipv6() -> None:
    """A store on an IPv6 address is reached there."""
    try:
        six = Served(host="::1", token="secret")
    except OSError as error:
        pytest.skip(f"no IPv6 loopback here: {error}")
    node = Node(six.port, "a", host="::1")
    node.wait_for_kind(events.StoreConnected)
    node.close()
    six.close()


def test_sigterm_ends_it_at_once_and_it_is_small() -> None:
    """The store's own pod ends on SIGTERM, also as the first process of a container, and takes little memory."""
    with started(TOKEN) as store:
        megabytes = store.megabytes()
        store.process.send_signal(signal.SIGTERM)

        assert store.process.wait(10) == 143
    assert megabytes < 30


@pytest.mark.parametrize(("host", "token", "warns"), [("", "", True), ("", TOKEN, False), ("127.0.0.1", "", False)])
def test_an_open_store_says_so(host: str, token: str, warns: bool) -> None:
    """Where others can reach it; what to do is in the line, and the token never is."""
    with started(token, host=host) as store:
        store.process.send_signal(signal.SIGTERM)
        _, said = store.process.communicate(timeout=20)

    assert ("ELASTIC_INFRA_STORE_TOKEN" in said) == warns
    assert TOKEN not in said


def test_busy_port_is_an_error() -> None:
    """A port in use by something else is a clear error and the documented exit code."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "elastic_infra.launcher.store", "--host", "127.0.0.1", "--port", port]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert port in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_that_connects_anew_is_not_dead(served: Served) -> None:
    """The end of a node's former connection has no meaning once a new one is accepted; the end of the last one has."""
    first, second = (after_hello(served, "a") for _ in range(2))
    ask(first, {"op": "set", "id": 1, "key": "node/a", "value": {}})
    first.close()

    assert presence(served, "a") == "live"
    second.close()
    assert presence(served, "a") == "disconnected"


@pytest.mark.parametrize("before", [b"", b'{"op": "set", "key": "node/', b"\n\n", b"[1]\n", b"\xff"])
def test_farewell_is_a_death(served: Served, before: bytes) -> None:
    """A node is dead once its supervisor says so, even behind an incomplete line; no message revives the node."""
    end, other = after_hello(served, "a"), after_hello(served, "a")
    ask(end, {"op": "beat", "id": 1})
    end.sendall(before + wire.FAREWELL)
    while end.recv(1 << 16):
        pass
    end.close()

    assert presence(served, "a") == "ended"
    ask(other, {"op": "beat", "id": 1})
    other.close()
    assert presence(served, "a") == "ended"


def test_before_hello_a_connection_says_no_farewell(served: Served) -> None:
    """Only a connection that has said hello as the node can say its farewell."""
    node = after_hello(served, "a")
    with socket.create_connection(("127.0.0.1", served.port)) as end:
        end.sendall(wire.FAREWELL)
        assert b"hello" in end.recv(4096)
    nameless = after_hello(served, "")
    nameless.sendall(wire.FAREWELL)
    while nameless.recv(1 << 16):
        pass
    nameless.close()

    assert presence(served, "a") == "live"
    node.close()


def test_readers_that_do_not_read_cost_a_bound_and_get_everything() -> None:
    """Fifteen of them while 50 MB are written; each then reads the present value, from a snapshot."""
    with started() as store, store.connect(node="writer") as writer, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(store.connect(node=f"reader-{number}")) for number in range(15)]
        for number in range(100):
            value = f"{number}:" + "x" * (MEGABYTE // 2)
            assert "error" not in ask(writer, {"op": "set", "id": number, "key": "x", "value": value})
        grown = store.megabytes()
        told = [_last(reader, "x") for reader in readers]
        beats = [ask(reader, {"op": "beat", "id": 1}) for reader in readers]

    assert grown < 100
    assert {text[:3] for text in told} == {"99:"}
    assert beats == [{"id": 1}] * 15


def gathering(served: Served, end: socket.socket) -> Feed:
    """The job's notices, which are gathered until ``due`` is set to an earlier time; no round of the server goes on."""
    ask(end, {"op": "beat", "id": 0})
    feed = served.server._feeds["job"]
    feed.due = math.inf
    return feed


def test_a_change_comes_before_the_answer_that_reports_it(served: Served) -> None:
    """Also while notices are gathered; a beat does not wait for them."""
    with after_hello(served, "a") as end:
        feed = gathering(served, end)
        end.sendall(wire.encode({"op": "compare_and_set", "id": 1, "key": "gen", "value": {"number": 1}, "version": 0}))
        wait_until(lambda: "gen" in served.server._keyspaces["job"].entries)
        end.sendall(wire.BEAT)
        with end.makefile("rb") as lines:
            said = [json.loads(lines.readline())]
            feed.due = 0.0
            said += [json.loads(line) for line in (lines.readline(), lines.readline())]

    assert [each.get("op") or each.get("event") or each.get("id") for each in said] == ["beat", "set", 1]


def test_beats_that_come_together_are_answered_one_by_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that takes seconds finds several beats of each node: a busy store must not read each as JSON."""
    with after_hello(served, "a") as end, monkeypatch.context() as patch:
        ask(end, {"op": "beat", "id": 0})
        patch.setattr(wire, "decode", read := mock.Mock(wraps=wire.decode))
        end.sendall(wire.BEAT * 3)
        told = b""
        while len(told) < 3 * len(wire.BEAT):
            told += end.recv(1 << 16)

    assert told == wire.BEAT * 3
    read.assert_not_called()


def test_nodes_that_come_together_share_one_snapshot(served: Served) -> None:
    """A thousand hellos at once cost one snapshot: each newcomer waits as long as the notices are gathered."""
    with after_hello(served, "a") as end, contextlib.ExitStack() as stack:
        ask(end, {"op": "set", "id": 1, "key": "node/a", "value": {"uuid": "a"}})
        snapshot, calls = served.server._keyspaces["job"].snapshot, []
        served.server._keyspaces["job"].snapshot = lambda now: calls.append(now) or snapshot(now)  # type: ignore[method-assign,func-returns-value]  # counted
        feed = gathering(served, end)
        newcomers = [stack.enter_context(before_hello(served)) for _ in range(20)]
        for number, newcomer in enumerate(newcomers):
            newcomer.sendall(wire.encode({"op": "hello", "id": number, "job": "job", "node": "", "token": TOKEN}))
        wait_until(lambda: len(feed.newcomers) == len(newcomers))
        feed.due = 0.0
        said = [json.loads(newcomer.makefile("rb").readline()) for newcomer in newcomers]

    assert [each["id"] for each in said] == [*range(20)]
    assert all(each["entries"].keys() == {"node/a"} for each in said)
    assert len(calls) == 1


def test_a_crowd_gets_long_messages_packed(served: Served) -> None:
    """A newcomer among many nodes reads the same picture from a fraction of the bytes, and then the same changes."""
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(after_hello(served, f"node-{number}")) for number in range(server.CROWD)]
        seen = Node(served.port, "reader")
        stack.callback(seen.close)
        first = seen.wait_for_kind(events.StoreConnected)
        feed = gathering(served, ends[0])
        for number, end in enumerate(ends):
            said = {"uuid": f"node-{number}", "name": "a" * 50, "state": "ready"}
            end.sendall(wire.encode({"op": "set", "id": 1, "key": f"node/node-{number}", "value": said}))
        wait_until(lambda: len(served.server._keyspaces["job"].entries) == len(ends))
        feed.due = 0.0
        seen.wait_for(lambda _: sum(isinstance(each, events.PeerSeen) for each in seen.notifications) == server.CROWD)
        late = stack.enter_context(before_hello(served))
        late.sendall(wire.encode({"op": "hello", "id": 0, "job": "job", "node": "late", "token": TOKEN}))
        line = late.makefile("rb").readline()
        session, pictures = client.connect(client.Target("localhost", served.port, "job", "x", TOKEN), time.monotonic)
        session.socket.close()

    assert isinstance(first, events.StoreConnected)
    assert first.peers == ()
    assert len(line) < 50 * server.CROWD
    (picture,) = (each for each in pictures if isinstance(each, events.StoreConnected))
    assert {peer.record.state for peer in picture.peers} == {"ready"}
    assert len(picture.peers) == server.CROWD


def _last(end: socket.socket, key: str) -> str:
    """The newest value of a key that the server tells, read until the snapshot."""
    with end.makefile("rb") as lines:
        for line in lines:
            message = json.loads(line)
            if message.get("event") == "snapshot":
                return str(message["entries"][key][1])
    message = "the store closed the connection"
    raise AssertionError(message)


def test_answers_that_nobody_reads_are_bounded() -> None:
    """A client that asks for a megabyte a thousand times and reads nothing loses its connection."""
    with started() as store, store.connect(node="a") as reader, store.connect(node="b") as other:
        ask(reader, {"op": "set", "id": 1, "key": "x", "value": "x" * (MEGABYTE // 2)})
        with contextlib.suppress(OSError):
            reader.sendall(wire.encode({"op": "get", "id": 2, "key": "x"}) * 1000)
        ask(other, {"op": "beat", "id": 1})
        grown = store.megabytes()

    assert grown < 120


def sampled(store: server.Server) -> list[tuple[int, int]]:
    """After each of its rounds from now on: the bytes that its connections hold, and its own sum of them."""
    samples: list[tuple[int, int]] = []
    serve_once = store.serve_once

    def watched(timeout: float) -> None:
        serve_once(timeout)
        connections = store._connections.values()
        chunks = {chunk for each in connections for chunk, _ in each._chunks}
        gathered = sum(feed.size for feed in store._feeds.values())
        unread = sum(each.unread for each in connections)
        samples.append((unread + gathered + sum(len(chunk.data) for chunk in chunks), store._held.size))

    store.serve_once = watched  # type: ignore[method-assign]
    return samples


UNREAD = {
    "incomplete messages": (40, b'{"op":"set","id":1,"key":"x","value":"' + b"x" * (wire.MAX_LINE - 100)),
    "answers": (12, wire.encode({"op": "get", "id": 1, "key": "x"}) * 80),
}
"""How many clients hold how much together: more than the bound, also where the kernel keeps a part of the answers."""


@pytest.mark.parametrize("kind", ["incomplete messages", pytest.param("answers", marks=pytest.mark.slow)])
def test_what_all_clients_hold_together_is_bounded(kind: str) -> None:
    """No client holds much, all together more than the bound: the largest holder is ended, and the sum stays right."""
    number, data = UNREAD[kind]
    served = Served(TOKEN)
    samples = sampled(served.server)
    try:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(after_hello(served, "writer"))]
            ask(clients[0], {"op": "set", "id": 1, "key": "x", "value": "x" * 100_000})
            clients += [stack.enter_context(after_hello(served, f"node {each}")) for each in range(number)]
            for client in clients[1:]:
                client.sendall(data)
            wait_until(lambda: len(served.server._connections) < len(clients))
    finally:
        served.close()

    assert all(held == counted for held, counted in samples)
    assert server.BUFFERED_BYTES // 2 < max(counted for _, counted in samples) <= server.BUFFERED_BYTES
    assert server.BUFFERED_BYTES + server.STORED_BYTES == 64 * MEGABYTE


def test_what_is_stored_is_bounded() -> None:
    """Values are measured as the memory that they take; what no longer fits is refused, and said."""
    with started() as store, store.connect(node="a") as end:
        value: list[list[object]] = [[]] * 300_000
        refused = [
            number
            for number in range(4)
            if "error" in ask(end, {"op": "set", "id": number, "key": str(number), "value": value})
        ]
        grown = store.megabytes()
        small = ask(end, {"op": "get", "id": 100, "key": "0"})

    assert refused
    assert 0 not in refused
    assert len(json.dumps(small["value"])) > 300_000
    assert grown < 200


def test_hellos_are_forgotten() -> None:
    """Jobs and nodes that left nothing behind leave no trace once their connections are gone."""
    served = Served()
    try:
        for number in range(200):
            with before_hello(served) as end:
                ask(end, {"op": "hello", "id": 0, "job": f"job {number}", "node": f"node {number}"})
        with before_hello(served) as end:
            ask(end, {"op": "hello", "id": 0, "job": "job", "node": "a"})
            ask(end, {"op": "set", "id": 1, "key": "x", "value": 1})
            wait_until(lambda: set(served.server._keyspaces) == {"job"})
    finally:
        served.close()


def test_a_job_that_is_over_gives_way() -> None:
    """A store that outlives its jobs forgets the oldest without a client, when room is needed."""
    served = Served()
    value = "x" * 900_000
    try:
        for number in range(40):
            with before_hello(served) as end:
                ask(end, {"op": "hello", "id": 0, "job": f"job {number}", "node": ""})
                assert ask(end, {"op": "set", "id": 1, "key": "x", "value": f"{value}{number}"}) == {"id": 1}
        stored = sum(keyspace.memory for keyspace in served.server._keyspaces.values())
        assert 0.9 * server.STORED_BYTES < stored <= server.STORED_BYTES
        assert "job 39" in served.server._keyspaces
        assert "job 0" not in served.server._keyspaces
    finally:
        served.close()


def test_idle_connections_do_not_keep_a_node_out() -> None:
    """With every place taken, the oldest connection without a hello is closed."""
    with started(TOKEN, descriptors=256) as store, contextlib.ExitStack() as stack:
        soft = len(os.listdir(f"/proc/{store.process.pid}/fd"))
        limits = pathlib.Path(f"/proc/{store.process.pid}/limits").read_text()
        raised = int(next(line.split()[3] for line in limits.splitlines() if line.startswith("Max open files")))
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", store.port))) for _ in range(300)]
        stack.enter_context(store.connect(node="a", token=TOKEN))

        assert soft < 20
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        assert len(idle) == 300


def test_the_largest_job_has_two_places_for_each_node() -> None:
    """A node closes its former connection once another one stands, and all nodes may do so at one time."""
    assert server.MAX_CONNECTIONS >= 2 * MAX_NODES


def test_places_are_fewer_than_descriptors() -> None:
    """Where the limit cannot be raised, new connections replace those without a hello, and the server does not spin."""
    served = Served(TOKEN)
    served.server.places = 20
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(before_hello(served))
            node = stack.enter_context(after_hello(served, "a"))
            for _ in range(40):
                stack.enter_context(before_hello(served))

            assert ask(node, {"op": "beat", "id": 1}) == {"id": 1}
            assert len(served.server._connections) <= 20
    finally:
        served.close()
