"""A node's link to a real server: its notifications to the agent, and that it carries orders."""

from __future__ import annotations

import itertools
import select
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from elastic_infra.launcher.protocol import actions, events, records
from elastic_infra.launcher.store import client, link
from tests.launcher.store.serving import Node, Served, wait_until
from tests.ports import free_port

GENERATION = records.Generation(1, members=(records.Member("a", "a", 1),), incarnation="e")


def test_compare_and_set_has_one_winner(nodes: tuple[Node, Node]) -> None:
    """Of two compare-and-sets at one version one succeeds, and both nodes see its value."""
    first, second = nodes
    first.link.order(actions.CompareAndSet(GENERATION, 0))
    second.link.order(actions.CompareAndSet(replace(GENERATION, number=2), 0))
    done = [node.wait_for_kind(events.CompareAndSetDone) for node in nodes]
    seen = [node.wait_for_kind(events.GenerationSeen) for node in nodes]

    assert sorted(each.succeeded for each in done if isinstance(each, events.CompareAndSetDone)) == [False, True]
    assert seen[0] == seen[1]


def test_end_of_a_connection_is_no_death(nodes: tuple[Node, Node]) -> None:
    """Peers learn at once that a node's connection has ended, and no more than that."""
    first, second = nodes
    first.link.order(actions.Publish(records.NodeRecord("a", "", "ready")))
    second.wait_for_kind(events.PeerSeen)
    first.close()

    second.wait_for(lambda each: isinstance(each, events.PeerSeen) and each.peer.presence == "disconnected", 5)


def test_beats_are_acknowledged(nodes: tuple[Node, Node]) -> None:
    """A beat is a round trip: the acknowledged time is that of sending."""
    nodes[0].notifications.clear()
    notification = nodes[0].wait_for_kind(client.Acknowledged)

    assert isinstance(notification, client.Acknowledged)
    assert notification.sent_at <= time.monotonic()


def test_wrong_token_is_rejected(served: Served) -> None:
    """A node without the token is told so and gets nothing."""
    node = Node(served.port, "x", token="guess")
    notification = node.wait_for_kind(link.Rejected)
    node.close()

    assert "token" in str(notification)
    assert "secret" not in str(notification)


def test_unresolvable_name_is_tried_again(served: Served) -> None:
    """A name that does not resolve gives a notification, and the link tries again."""
    node = Node(served.port, "x", host="name.invalid")
    notification = node.wait_for_kind(link.Unreachable)
    node.close()

    assert "resolved" in str(notification)


def test_something_else_on_the_port_is_named() -> None:
    """A server that is no store is named as such."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        node = Node(other.getsockname()[1], "x")
        end, _ = other.accept()
        end.sendall(b'{"hello": "world"}\n')
        notification = node.wait_for_kind(link.Unreachable)
        node.close()
        end.close()

    assert "no store of ours" in str(notification)


def test_job_has_its_own_keys(served: Served, nodes: tuple[Node, Node]) -> None:
    """Two run ids on one port do not see each other."""
    nodes[0].link.order(actions.CompareAndSet(GENERATION, 0))
    nodes[0].wait_for_kind(events.CompareAndSetDone)
    other = Node(served.port, "c", job="another")
    picture = other.wait_for_kind(events.StoreConnected)
    other.close()

    assert isinstance(picture, events.StoreConnected)
    assert picture.generation is None


def test_orders_before_the_end_are_carried(nodes: tuple[Node, Node]) -> None:
    """The agent's last orders are still sent."""
    first, second = nodes
    first.link.order(actions.Publish(records.NodeRecord("a", "", "left")))
    first.link.close()

    second.wait_for(lambda each: isinstance(each, events.PeerSeen) and each.peer.record.state == "left")


def test_a_refusal_after_an_acceptance_is_a_lost_store(served: Served) -> None:
    """The store came back with another token, or another store did: the node tries on, for that may be corrected."""
    node = Node(served.port, "a")
    node.wait_for_kind(events.StoreConnected)
    served.close()
    node.wait_for_kind(events.StoreLost)
    other = Served("another token", port=served.port)
    node.wait_for(lambda each: isinstance(each, link.Unreachable) and "token" in each.reason)
    other.close()
    again = Served(port=served.port)
    node.wait_for(lambda each: isinstance(each, events.StoreConnected) and each.incarnation == again.server.incarnation)
    node.close()
    again.close()

    assert not any(isinstance(notification, link.Rejected) for notification in node.notifications)


def test_an_open_store_takes_a_node_with_a_token() -> None:
    """A Secret that was made after the store had started keeps no node out."""
    served = Served()
    node = Node(served.port, "a")
    picture = node.wait_for_kind(events.StoreConnected)
    node.close()
    served.close()

    assert isinstance(picture, events.StoreConnected)


def test_nodes_that_lost_one_store_do_not_reconnect_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is a random share of the one that is due, so that a thousand nodes do not come at one moment."""
    waits: dict[int, list[float]] = {}

    def at_once(read: Sequence[int], write: Sequence[int], other: Sequence[int], wait: float) -> object:
        waits.setdefault(threading.get_ident(), []).append(wait)
        return select.select(read, write, other, 0.01)

    monkeypatch.setattr(link, "select", SimpleNamespace(select=at_once))
    port = free_port()
    nodes = [Node(port, name, host="127.0.0.1") for name in ("a", "b")]
    wait_until(lambda: len(waits) == 2 and all(len(each) >= 8 for each in waits.values()))
    for node in nodes:
        node.close()

    first, second = (each[:8] for each in waits.values())
    due = [*link.RETRY_SECONDS, *itertools.repeat(link.RETRY_SECONDS[-1], 8 - len(link.RETRY_SECONDS))]
    low, high = link.SPREAD
    for taken in (first, second):
        assert all(low * wait <= each <= high * wait for each, wait in zip(taken, due, strict=True))
    assert all(one != other for one, other in zip(first, second, strict=True))
