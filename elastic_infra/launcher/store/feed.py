"""One job's notices until they are sent: made to bytes once for all readers.

No I/O, no clock. Equal changes of several nodes in a row are one notice: a thousand nodes that enter a generation say
the same.
"""

from __future__ import annotations

from . import wire
from .connection import Connection, Held
from .keyspace import Notice


class Feed:
    """The notices of one job that have not been sent yet."""

    def __init__(self, held: Held) -> None:
        self.readers: dict[Connection, None] = {}
        """Connections that have a snapshot, and so get every notice."""
        self.newcomers: dict[Connection, dict[str, object]] = {}
        """Connections that wait for a snapshot, with the members in front of it."""
        self.due = 0.0
        """Not to be sent before this time of the server's clock."""
        self._held = held
        self._lines: list[bytes] = []
        self._change = b""
        """What the last notices say of nodes, as members of an object; empty where they say something else."""
        self._nodes: list[object] = []
        """The nodes of which they say it."""
        self.size = 0
        """Bytes so far, without those of the last notice where the next one may extend it."""

    def add(self, notice: Notice) -> None:
        """Take a notice down, behind all earlier ones."""
        if "node" not in notice or notice["event"] != "changed":
            self._end_run()
            self._append(wire.encode(notice))
            return
        change = wire.to_json({name: value for name, value in notice.items() if name != "node"})
        if change != self._change:
            self._end_run()
            self._change = change
        self._nodes.append(notice["node"])

    def take(self) -> bytes:
        """All notices so far, which are forgotten here."""
        self._end_run()
        data = b"".join(self._lines)
        self._held.size -= self.size
        self._lines.clear()
        self.size = 0
        return data

    def _end_run(self) -> None:
        if self._nodes:
            self._append(b'%b,"nodes":%b}\n' % (self._change[:-1], wire.to_json(self._nodes)))
            self._change, self._nodes = b"", []

    def _append(self, line: bytes) -> None:
        self._lines.append(line)
        self.size += len(line)
        self._held.size += len(line)
