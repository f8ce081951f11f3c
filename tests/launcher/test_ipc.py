"""Supervisor and agent: every message arrives as it was sent, with its descriptor, and an end is told."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import get_args

import pytest

from elastic_infra.launcher import ipc

MESSAGES: tuple[ipc.Message, ...] = (
    ipc.Spawn(3, (ipc.WorkerSpec(0, ("python", "train.py"), {"RANK": "0", "ODD": "\udcff"}, "out.log"),), warm=True),
    ipc.WarmUp(),
    ipc.Stop(3, 30.0, "SIGTERM", "a planned change"),
    ipc.Kill(3, (0, 1)),
    ipc.DumpStacks(3),
    ipc.HoldStore(),
    ipc.BeatAcked(1.5, 30.0),
    ipc.AgentBeat("monitoring"),
    ipc.HostStore("localhost", 0),
    ipc.Note({"message": "no memory", "local_rank": 1}),
    ipc.Leave(93, "no progress", 2.0),
    ipc.WorkerStarted(3, 1, 4711, warm=True),
    ipc.WorkerEnded(3, 1, 4711, -9, 12.25, "killed"),
    ipc.GroupGone(3, (0, 1), orphaned=True),
    ipc.SignalCaught(15),
    ipc.Suspended(3),
    ipc.Resume(3),
    ipc.ForkServerState(ready=True, message="ready"),
    ipc.StoreHosted(29400, ""),
)


@pytest.fixture
def ends() -> Iterator[tuple[ipc.Channel, ipc.Channel]]:
    first, second = (ipc.Channel(end) for end in socket.socketpair())
    yield first, second
    first.close()
    second.close()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: ipc.Message) -> None:
    """Every kind of message, with bytes of the environment that are no text."""
    assert ipc.decode(ipc.encode(message)) == message


def test_every_kind_of_message_is_tried() -> None:
    """A new message is added above as well."""
    assert {type(message) for message in MESSAGES} == set(get_args(ipc.Message))


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"type": "Unknown"}', b'{"type": "Stop"}'])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    """By the errors that the docstring names."""
    with pytest.raises((ValueError, TypeError, KeyError)):
        ipc.decode(line)


def test_messages_come_whole_and_in_order(ends: tuple[ipc.Channel, ipc.Channel]) -> None:
    """One read may complete several."""
    for message in MESSAGES:
        ends[0].send(message)
    received: list[ipc.Message] = []
    while len(received) < len(MESSAGES):
        received += ends[1].receive()

    assert tuple(received) == MESSAGES


def test_a_descriptor_travels_with_its_message(ends: tuple[ipc.Channel, ipc.Channel]) -> None:
    """What is written at one end is read at the other's copy."""
    read, write = os.pipe()
    ends[0].send(ipc.HoldStore(), write)
    os.close(write)
    (message,) = ends[1].receive()
    (copy,) = ends[1].descriptors
    os.write(copy, b"x")

    assert (message, os.read(read, 1)) == (ipc.HoldStore(), b"x")
    os.close(copy)
    os.close(read)


def test_the_other_sides_end_is_told(ends: tuple[ipc.Channel, ipc.Channel]) -> None:
    """A closed channel is an end of file, never a message."""
    ends[0].close()
    with pytest.raises(EOFError):
        list(ends[1].receive())
