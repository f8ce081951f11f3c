"""One job's notices until they are sent: made to bytes once for all readers.

No I/O, no clock. Equal changes of several nodes are one notice, also where other nodes said other things in between: a
thousand nodes that end their workers say the same two things, in any order. The notice names the nodes by the gaps
between their numbers, which are nearly all 1 and cost next to nothing packed.

The changes of one node keep their order, and all of them keep theirs beside every other notice. Those of different
nodes between two such notices do not: a node decides on the picture after all of them.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple, cast

from . import wire
from .connection import Connection, Held
from .keyspace import Notice


class _Wave(NamedTuple):
    """A change that several nodes made."""

    change: bytes
    """What they say, as members of an object."""
    nodes: list[int]

    def line(self) -> bytes:
        """As one notice: what the nodes say, and the gaps between their numbers."""
        gaps = [number - before for before, number in itertools.pairwise([0, *sorted(self.nodes)])]
        return b'%b,"gaps":%b}\n' % (self.change[:-1], wire.to_json(gaps))


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
        self._waves: list[_Wave] = []
        """What nodes said since the last line."""
        self._wave_of_change: dict[bytes, int] = {}
        """The place of the last wave of each change."""
        self._wave_of_node: dict[int, int] = {}
        """The place of the last wave that each node is in."""
        self.size = 0
        """Bytes so far, without the nodes of waves."""

    def add(self, notice: Notice) -> None:
        """Take a notice down, behind all earlier ones."""
        if "node" not in notice or notice["event"] != "changed":
            self._end_waves()
            self._lines.append(line := wire.encode(notice))
            self._count(len(line))
            return
        change = wire.to_json({name: value for name, value in notice.items() if name != "node"})
        node = cast("int", notice["node"])
        place = self._wave_of_change.get(change, -1)
        if place <= self._wave_of_node.get(node, -1):  # none yet, or the node said something else after that
            place = len(self._waves)
            self._waves.append(_Wave(change, []))
            self._count(len(change))
        self._waves[place].nodes.append(node)
        self._wave_of_change[change] = self._wave_of_node[node] = place

    def take(self) -> bytes:
        """All notices so far, which are forgotten here."""
        self._end_waves()
        data = b"".join(self._lines)
        self._held.size -= self.size
        self._lines.clear()
        self.size = 0
        return data

    def _end_waves(self) -> None:
        self._lines += [wave.line() for wave in self._waves]
        for kept in (self._waves, self._wave_of_change, self._wave_of_node):
            kept.clear()

    def _count(self, size: int) -> None:
        self.size += size
        self._held.size += size
