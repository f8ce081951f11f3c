"""One connection to a real server, without the thread around it."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from typing_extensions import override

from elastic_infra.config.elastic import MAX_NODES
from elastic_infra.launcher import codec
from elastic_infra.launcher.protocol import actions, events, records
from elastic_infra.launcher.store import client, keys, server, wire
from tests.launcher.store.serving import TOKEN, Served, after_hello, ask

RECORD = records.NodeRecord("a", "", "ready")


class Kept(socket.socket):
    """A connection that keeps what is sent."""

    sent = b""

    @override
    def sendall(self, data: Any, flags: int = 0, /) -> None:
        self.sent += data


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


def test_a_deadline_waits_for_silence_and_not_for_an_answer() -> None:
    """Bytes that trickle keep a connection whose beat is not answered in time; without bytes it is lost.

    The store sends a change to thousands of nodes before it answers, and a message may take longer than a call may.
    """
    now = 0.0
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = client.Session(ours, wire.Lines(), keys.Mirror(), lambda: now, now)
        session.beat()
        for _ in range(8):
            now += 0.9 * wire.CALL_SECONDS
            theirs.sendall(b" ")
            assert session.receive() == []
            session.beat()
        assert session.acknowledged_at == 0.0
        now += 0.9 * wire.CALL_SECONDS
        session.beat()
        assert session.wait() == pytest.approx(0.1 * wire.CALL_SECONDS)
        now += 0.1 * wire.CALL_SECONDS
        with pytest.raises(client.LostError, match="did not answer") as lost:
            session.beat()

    assert not lost.value.by_peer


@pytest.mark.parametrize(
    ("name", "share"),
    [("elastic-job-worker-{}", 0.62), ("{:063}", 0.88)],
    ids=["usual names", "the longest names of pods"],
)
def test_the_largest_generation_fits_into_one_message(name: str, share: float) -> None:
    """The record of as many nodes as a job may have is asked for in a single line."""
    members = tuple(records.Member(f"{index:032x}", name.format(index), 8) for index in range(MAX_NODES))
    with Kept() as end:
        session = client.Session(end, wire.Lines(), keys.Mirror(), time.monotonic, 0.0)
        session.carry_out(actions.CompareAndSet(records.Generation(1, members=members, incarnation="0" * 16), 1))

    assert len(end.sent) / wire.MAX_LINE == pytest.approx(share, abs=0.01)
    (read,) = wire.Lines().feed(end.sent)
    assert codec.from_json(records.Generation, read["value"]).members == members
