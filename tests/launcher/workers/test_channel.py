"""Agent and worker: every message arrives as it was sent, and only a worker is let in."""

from __future__ import annotations

import os
import pathlib
import select
import stat
from collections.abc import Iterator
from typing import get_args

import pytest

from elastic_infra.launcher.workers import channel

MESSAGES: tuple[channel.Message, ...] = (
    channel.Welcome(),
    channel.Break(3),
    channel.Enter(3, {"RANK": "1", "MASTER_PORT": "4000"}),
    channel.Dismiss("whole"),
    channel.Ready(),
    channel.In(3, "training is over"),
    channel.Failed(3, "Connection closed by peer"),
    channel.Parked(3, 120),
    channel.Stuck(3),
)


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[channel.Server]:
    server = channel.Server.listen(str(tmp_path / "channel"))
    yield server
    server.close()


def connect(server: channel.Server) -> channel.Connection:
    """A worker's end of the channel."""
    connection = channel.connect({channel.VARIABLE: server.path})
    assert connection is not None
    server.accept()
    return connection


def test_every_message_arrives_as_it_was_sent(server: channel.Server) -> None:
    """Each as one packet, in order."""
    worker = connect(server)
    agent = server.claim(os.getpid())
    assert agent is not None
    assert {type(message) for message in MESSAGES} == set(get_args(channel.Message))

    assert channel.is_welcome(worker)
    for message in MESSAGES:
        assert agent.send(message)
    assert tuple(worker.receive() for _ in MESSAGES) == MESSAGES
    agent.close()
    assert worker.receive() is None
    worker.close()


def test_only_the_same_user_reaches_the_socket_and_only_a_worker_is_heard(server: channel.Server) -> None:
    """The kernel names the process at the other end; one that is no worker is dropped."""
    unclaimed = connect(server)

    assert stat.S_IMODE(os.stat(server.path).st_mode) == 0o600
    assert server.claim(os.getpid() + 1) is None
    server.drop_unclaimed()
    assert unclaimed.receive() is None
    assert server.claim(os.getpid()) is None
    unclaimed.close()


def test_a_child_that_inherits_the_variable_is_not_taken_for_its_worker(server: channel.Server) -> None:
    """A process that loads data is forked from the worker: the kernel names the child, which reads the end."""
    child = os.fork()
    if not child:
        connection = channel.connect({channel.VARIABLE: server.path})
        os._exit(0 if connection is not None and not channel.is_welcome(connection) else 1)
    assert select.select([server], [], [], 60)[0], "the child has connected"
    server.accept()

    assert server.claim(os.getpid()) is None
    server.drop_unclaimed()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_worker_connects_once(server: channel.Server) -> None:
    """A second connection of the same process is closed."""
    first, second = connect(server), connect(server)
    agent = server.claim(os.getpid())
    assert agent is not None

    assert second.receive() is None
    assert first.send(channel.Ready())
    assert agent.receive() == channel.Ready()
    for end in (first, second, agent):
        end.close()


@pytest.mark.parametrize("packet", [b"[]", b"{}", b'{"type": "Unknown"}', b'{"type": "In"}', b"\xff"])
def test_what_is_no_message_ends_the_connection(server: channel.Server, packet: bytes) -> None:
    """It is read as the end of the stream."""
    worker = connect(server)
    agent = server.claim(os.getpid())
    assert agent is not None
    worker.end.send(packet)

    assert agent.receive() is None
    for end in (worker, agent):
        end.close()


def test_without_an_agent_there_is_no_channel(tmp_path: pathlib.Path) -> None:
    """No variable, or a socket without a server."""
    assert channel.connect({}) is None
    assert channel.connect({channel.VARIABLE: str(tmp_path / "gone")}) is None
