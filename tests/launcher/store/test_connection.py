"""What one connection has yet to send, over a pair of sockets of this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from elastic_infra.launcher.store.connection import PIECES, Chunk, Connection, Held

LARGE = 1 << 20
"""Bytes, more than the kernel takes at once."""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        yield ours, theirs


def test_chunks_arrive_in_order_however_little_the_kernel_takes(ends: tuple[socket.socket, socket.socket]) -> None:
    """Pieces that were cut go on where they were cut, and nothing is held once all is sent."""
    held = Held()
    connection = Connection(ends[0], 0.0)
    sent = [b"%d;" % number * (LARGE // 100 if number % 3 else 1) for number in range(2 * PIECES)]
    for data in sent:
        connection.put(Chunk(data, held))
    received = bytearray()
    while connection.backlog:
        connection.send()
        received += ends[1].recv(LARGE)
    ends[1].settimeout(0)
    while len(received) < sum(map(len, sent)):
        received += ends[1].recv(LARGE)

    assert received == b"".join(sent)
    assert (connection.buffered, held.size) == (0, 0)


def test_a_chunk_for_many_is_held_once_and_until_the_last(ends: tuple[socket.socket, socket.socket]) -> None:
    """A slow reader holds the bytes that a quick one has sent, and a connection that ends holds none."""
    held = Held()
    slow, quick = Connection(ends[0], 0.0), Connection(ends[0], 0.0)
    chunk = Chunk(b"x" * 100, held)
    slow.put(chunk)
    quick.put(chunk)
    both = held.size
    quick.send()
    one = held.size
    slow.forget()

    assert (both, one, held.size) == (100, 100, 0)
    assert (slow.backlog, quick.backlog) == (0, 0)


def test_a_broken_connection_is_no_error(ends: tuple[socket.socket, socket.socket]) -> None:
    """The next read shows that the other end is gone."""
    connection = Connection(ends[0], 0.0)
    ends[1].close()
    connection.put(Chunk(b"x", Held()))
    connection.send()

    assert connection.backlog == 1
