"""One connection to a real server, without the thread around it."""

from __future__ import annotations

import time

import pytest

from elastic_infra.launcher.protocol import events, records
from elastic_infra.launcher.store import client, server
from tests.launcher.store.serving import TOKEN, Served, after_hello, ask

RECORD = records.NodeRecord("a", "", "ready")


def connected(served: Served, node: str, token: str = TOKEN) -> tuple[client.Session, events.StoreConnected]:
    """A session and the picture that it begins with."""
    session, first = client.connect(client.Target("localhost", served.port, "job", node, token), time.monotonic)
    (picture,) = (each for each in first if isinstance(each, events.StoreConnected))
    return session, picture


def test_a_session_begins_with_all_that_is_there(served: Served) -> None:
    """The session has the records that were published before, with the presence of their nodes."""
    with after_hello(served, "a") as other:
        ask(other, {"op": "set", "id": 1, "key": "node/a", "value": {"uuid": "a", "name": "", "state": "ready"}})
        session, picture = connected(served, "b")
        session.socket.close()

        assert [(peer.record, peer.presence) for peer in picture.peers] == [(RECORD, "live")]


def test_a_session_that_fell_behind_gets_the_whole_picture(served: Served) -> None:
    """Notices beyond the backlog are left out, and a snapshot comes instead; answers are never left out."""
    session, _ = connected(served, "b")
    with after_hello(served, "a") as other:
        ask(other, {"op": "set", "id": -1, "key": "node/a", "value": {"uuid": "a", "name": "", "state": "ready"}})
        for number in range(3 * server.BACKLOG_BYTES // 500_000 + 12):
            ask(other, {"op": "set", "id": number, "key": "x", "value": f"{number}" + "x" * 500_000})
        session.beat()
        seen: list[events.Event | client.Acknowledged] = []
        deadline = time.monotonic() + 20
        while {events.StoreConnected, client.Acknowledged} - {type(each) for each in seen}:
            assert time.monotonic() < deadline, seen
            seen += session.receive()
        session.socket.close()

    # How many fit depends on the kernel's buffers, which grow: there may be more than one.
    pictures = [each for each in seen if isinstance(each, events.StoreConnected)]
    assert all([peer.record for peer in picture.peers] == [RECORD] for picture in pictures)


def test_a_wrong_token_is_a_refusal(served: Served) -> None:
    """No other try would end otherwise."""
    with pytest.raises(client.RefusalError, match="token"):
        connected(served, "x", token="guess")
