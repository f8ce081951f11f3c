"""The store over real sockets and processes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_infra.launcher.protocol import actions, events, records
from elastic_infra.launcher.store import client, link, server, wire
from elastic_infra.launcher.store.keyspace import Keyspace

ROOT = pathlib.Path(__file__).resolve().parents[3]
GENERATION = records.Generation(1, members=(records.Member("a", "a", 1),), incarnation="e")


class Served:
    """A server of this process in a thread, with its own clock."""

    def __init__(self, token: str = "", host: str = "localhost") -> None:
        self.listener = server.listen(host, 0)
        self.port = int(self.listener.getsockname()[1])
        self.server = server.Server(self.listener, token)
        self.is_closing = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.is_closing:
            self.server.serve_once(0.05)

    def close(self) -> None:
        self.is_closing = True
        self.thread.join()
        self.server.close()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(token="secret")
    yield served
    served.close()


class Node:
    """A link that remembers its news."""

    def __init__(self, port: int, name: str, token: str = "secret", host: str = "localhost") -> None:
        self.link = link.Link(client.Target(host, port, "job", name, token))
        self.news: list[link.Notification] = []
        self.link.start()

    def wait_for(self, what: Callable[[link.Notification], bool], seconds: float = 20.0) -> link.Notification:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for news in self.news:
                if what(news):
                    return news
            select.select([self.link.fileno()], [], [], 0.2)
            self.news += self.link.take()
        raise AssertionError(self.news)

    def wait_for_kind(self, kind: type) -> link.Notification:
        return self.wait_for(lambda news: isinstance(news, kind))

    def close(self) -> None:
        self.link.close()
        for news in [*self.news, *self.link.take()]:
            if isinstance(news, link.Holding):
                with contextlib.suppress(OSError):
                    os.close(news.descriptor)


@pytest.fixture
def nodes(served: Served) -> Iterator[tuple[Node, Node]]:
    pair = (Node(served.port, "a"), Node(served.port, "b"))
    for node in pair:
        node.wait_for_kind(events.StoreConnected)
    yield pair
    for node in pair:
        node.close()


def test_swap_has_one_winner(nodes: tuple[Node, Node]) -> None:
    """Of two compare-and-sets at one version one succeeds, and both nodes see its value."""
    first, second = nodes
    first.link.order(actions.CompareAndSet(GENERATION, 0))
    second.link.order(actions.CompareAndSet(replace(GENERATION, number=2), 0))
    done = [node.wait_for_kind(events.CompareAndSetDone) for node in nodes]
    seen = [node.wait_for_kind(events.GenerationSeen) for node in nodes]

    assert sorted(news.succeeded for news in done if isinstance(news, events.CompareAndSetDone)) == [False, True]
    assert seen[0] == seen[1]


def test_closed_connection_is_a_dead_node(nodes: tuple[Node, Node]) -> None:
    """Peers hear at once that a node's connection has ended."""
    first, second = nodes
    first.link.order(actions.Publish(records.NodeRecord("a", "", "ready")))
    second.wait_for_kind(events.PeerSeen)
    first.close()

    second.wait_for(lambda news: isinstance(news, events.PeerSeen) and news.peer.presence == "closed", 5)


def test_beats_are_acknowledged(nodes: tuple[Node, Node]) -> None:
    """A beat is a round trip: the acknowledged time is that of sending."""
    nodes[0].news.clear()
    news = nodes[0].wait_for_kind(client.Acknowledged)

    assert isinstance(news, client.Acknowledged)
    assert news.sent_at <= time.monotonic()


def test_wrong_token_is_rejected(served: Served) -> None:
    """A node without the token is told so and gets nothing."""
    node = Node(served.port, "x", token="guess")
    news = node.wait_for_kind(link.Rejected)
    node.close()

    assert "token" in str(news)
    assert "secret" not in str(news)


def test_unresolvable_name_is_tried_again(served: Served) -> None:
    """A name that does not resolve is news, not an end."""
    node = Node(served.port, "x", host="name.invalid")
    news = node.wait_for_kind(link.Unreachable)
    node.close()

    assert "resolved" in str(news)


def test_something_else_on_the_port_is_named() -> None:
    """A server that is none of ours is said to be none."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        node = Node(other.getsockname()[1], "x")
        end, _ = other.accept()
        end.sendall(b'{"hello": "world"}\n')
        news = node.wait_for_kind(link.Unreachable)
        node.close()
        end.close()

    assert "no store of ours" in str(news)


def test_job_has_its_own_keys(served: Served, nodes: tuple[Node, Node]) -> None:
    """Two run ids on one port do not see each other."""
    nodes[0].link.order(actions.CompareAndSet(GENERATION, 0))
    nodes[0].wait_for_kind(events.CompareAndSetDone)
    other = link.Link(client.Target("localhost", served.port, "another", "c", "secret"))
    other.start()
    connected: list[link.Notification] = []
    while not any(isinstance(news, events.StoreConnected) for news in connected):
        select.select([other.fileno()], [], [], 1)
        connected += other.take()
    other.close()
    for news in connected:
        if isinstance(news, link.Holding):
            os.close(news.descriptor)

    pictures = [news for news in connected if isinstance(news, events.StoreConnected)]
    assert pictures[0].generation is None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
            lambda value: json.dumps(value).encode() + b"\n"
        ),
    )
)
def test_garbage_never_ends_it(served: Served, data: bytes) -> None:
    """Whatever a stranger sends, the server goes on answering others."""
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        stranger.sendall(data + b"\n")
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(4096):
            pass

    with socket.create_connection(("127.0.0.1", served.port)) as other:
        other.sendall(wire.encode({"op": "hello", "id": 1, "job": "garbage", "node": "", "token": "secret"}))
        assert b"incarnation" in other.recv(4096)


def test_oversized_message_is_cut_off(served: Served) -> None:
    """A message beyond the bound ends its connection, and only that."""
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        with contextlib.suppress(OSError):
            for _ in range(wire.MAX_LINE // 65536 + 8):
                stranger.sendall(b"x" * 65536)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):
                pass
    test_garbage_never_ends_it.hypothesis.inner_test(served, b"{}")  # type: ignore[attr-defined]  # the bare test


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
    command = [sys.executable, "-m", "elastic_infra.launcher.store", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert b"port" in process.stdout.readline()
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    process.send_signal(signal.SIGTERM)

    assert process.wait(10) == 143
    process.stdout.close()
    assert kilobytes < 30_000


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
    """The end of its former connection means nothing once it has been greeted on a new one; the last one's end does."""
    first, second = (greeted(served, "a") for _ in range(2))
    ask(first, {"op": "beat", "id": 1})
    first.close()

    assert presence(served, "a") == "live"
    second.close()
    assert presence(served, "a") == "closed"


def greeted(served: Served, node: str) -> socket.socket:
    """A connection of this node that has said hello."""
    end = socket.create_connection(("127.0.0.1", served.port))
    ask(end, {"op": "hello", "id": 0, "job": "job", "node": node, "token": "secret"})
    return end


def ask(end: socket.socket, request: dict[str, object]) -> dict[str, object]:
    """The answer."""
    end.settimeout(10)
    end.sendall(wire.encode(request))
    answer: dict[str, object] = json.loads(end.recv(1 << 16).splitlines()[-1])
    return answer


def presence(served: Served, node: str) -> str:
    """What the store says of a node. It accepts who asks no earlier than it reads what came before, then hears him."""
    with socket.create_connection(("127.0.0.1", served.port)) as end:
        hello = {"op": "hello", "id": 0, "job": "job", "node": "", "token": "secret"}
        presences = ask(end, hello)["presences"]
    assert isinstance(presences, dict)
    return str(presences[node][0])


def test_silence_is_no_end() -> None:
    """A node that only stopped beating is silent, speaks again and is live; a closed one is forgotten at last."""
    space = Keyspace()
    space.put("node/a", {})
    space.heard("a", 0.0)

    assert space.grow_silent(3.9, 4.0) == []
    assert space.grow_silent(4.0, 4.0) == [{"event": "presence", "node": "a", "presence": "silent"}]
    assert space.heard("a", 5.0) == [{"event": "presence", "node": "a", "presence": "live"}]
    assert space.closed("a", 6.0) == [{"event": "presence", "node": "a", "presence": "closed"}]
    assert space.forget(605.9, 600.0) == []
    assert space.forget(606.0, 600.0) == [{"event": "deleted", "key": "node/a"}]


@given(st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 4), st.booleans()), max_size=30))
def test_versions_never_repeat(calls: list[tuple[str, int, bool]]) -> None:
    """A version names one value of a key for ever, deletions included."""
    space = Keyspace()
    seen: set[tuple[str, int]] = set()
    for key, version, deletes in calls:
        at = space.entries.get(key, (0, None))[0] if version == 0 else version
        succeeded, notices = space.compare_and_set(key, None if deletes else {}, at)
        for notice in notices:
            if notice["event"] == "set":
                name = (key, int(str(notice["version"])))
                assert name not in seen
                seen.add(name)
        assert succeeded or not notices
