"""One client's connection as the server sees it: what it has sent, and what it has yet to read."""

from __future__ import annotations

import collections
import contextlib
import itertools
import selectors
import socket
from typing import Final

from . import wire
from .keyspace import Presence

HELLO_BYTES: Final = 4096
"""The longest hello: a connection holds no more before the server knows that it has the token."""
PIECES: Final = 64
"""Chunks of one system call; the kernel takes up to 1024."""


class Held:
    """Bytes that the server holds for its connections, in all."""

    def __init__(self) -> None:
        self.size = 0


class Chunk:
    """Bytes for one connection or many, which are held until the last of these has sent them."""

    def __init__(self, data: bytes, held: Held) -> None:
        self.data = data
        self._held = held
        self._holders = 0

    def hold(self) -> None:
        """One more connection has yet to send these bytes."""
        self._held.size += 0 if self._holders else len(self.data)
        self._holders += 1

    def release(self) -> None:
        """One connection has sent these bytes, or never will."""
        self._holders -= 1
        self._held.size -= 0 if self._holders else len(self.data)


class Connection:
    """One client, introduced or not."""

    def __init__(self, end: socket.socket, now: float) -> None:
        self.socket = end
        self.lines = wire.Lines(HELLO_BYTES)
        self.answers = bytearray()
        """Answers of this round, which follow the notices of this round."""
        self.backlog = 0
        """Bytes of the chunks that have not been sent."""
        self.counted = 0
        """Bytes of ``lines`` and ``answers`` in the server's sum."""
        self.awaits = selectors.EVENT_READ
        """The selector's events for this connection."""
        self.is_behind = False
        """Whether notices were left out: a snapshot is due once the connection has read all earlier bytes."""
        self.since = now
        self.job: str | None = None
        self.node = ""
        self.presence: Presence | None = None
        """The node's, once this connection is the node's current one."""
        self._chunks: collections.deque[tuple[Chunk, memoryview]] = collections.deque()

    @property
    def unread(self) -> int:
        """Bytes of incomplete messages and of answers, which no other connection shares."""
        return len(self.lines) + len(self.answers)

    @property
    def buffered(self) -> int:
        """Bytes that this connection holds in memory, alone or together with others."""
        return self.unread + self.backlog

    def put(self, chunk: Chunk) -> None:
        """Send these bytes behind all earlier ones."""
        chunk.hold()
        self._chunks.append((chunk, memoryview(chunk.data)))
        self.backlog += len(chunk.data)

    def send(self) -> None:
        """Send without waiting, as much as the kernel takes; the next read shows a broken connection."""
        with contextlib.suppress(OSError):
            while self._chunks and self._sent(
                self.socket.sendmsg([rest for _, rest in itertools.islice(self._chunks, PIECES)])
            ):
                pass

    def forget(self) -> None:
        """Hold no bytes any more: what has not been sent never will be."""
        self._sent(self.backlog)

    def _sent(self, size: int) -> bool:
        """Take down that so many bytes were sent; returns whether no piece was left in the middle."""
        self.backlog -= size
        while self._chunks:
            chunk, rest = self._chunks.popleft()
            if size < len(rest):
                self._chunks.appendleft((chunk, rest[size:]))
                return False
            size -= len(rest)
            chunk.release()
        return True
