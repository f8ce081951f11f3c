"""Nodes that send what a real one sends and keep no picture: a thousand of them fit on a core."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import selectors
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from typing_extensions import override

from elastic_infra.launcher import codec
from elastic_infra.launcher.protocol.records import NodeRecord, NodeState
from elastic_infra.launcher.store import keys, wire

JOB: Final = "rendezvous"
WORKERS: Final = 8
_GENERATION: Final = re.compile(
    rb'"gen"(?:,"version":|:\[)\d+,(?:"value":)?\{(?:"number":(\d+),)?(?:"phase":"(\w+)")?([^\n]*)'
)
"""In a notice and in a snapshot, with the rest of the line. A change has no number where the number stays; a phase that
is left out is ``running`` in a generation with a new number."""
_NODES: Final = b'"node/'
"""Ends the generation in a snapshot: the nodes' records follow."""
_MEMBER: Final = re.compile(rb'\{"uuid":"(\w+)"')
_INCARNATION: Final = re.compile(rb'"incarnation":"(\w+)"')
_PACKED: Final = b'"packed":"'
_CHECKED: Final = 64
"""Bytes of a packed text by which it is known: its last ones hold zlib's checksum."""
_READ: Final = 1 << 18
STARTUP_SECONDS: Final = 1
"""What a node says of its workers' start."""
SEND_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.1
SLOW_BYTES: Final = 4096
"""What a slow node reads each time that it looks."""


def uuid(index: int) -> str:
    """Of the node with this index, as random as a real one; the probe is the first."""
    return hashlib.md5(str(index).encode(), usedforsecurity=False).hexdigest()


def record(index: int, place: int) -> NodeRecord:
    """What a node says of itself once it is ready.

    Args:
        index: of the node among all that there ever were.
        place: the number in its name, which it may have from a node that is gone.
    """
    name = f"elastic-job-worker-{place}"
    return NodeRecord(uuid(index), name, "ready", WORKERS, place, "10.0.0.1", joined=1_700_000_000_000 + index)


class Heard(NamedTuple):
    """A generation, or a change of it, in a message."""

    number: bytes
    """Empty where it stays."""
    phase: bytes
    named: frozenset[bytes]
    """Uuids of the members that are told: all of a new generation, and of a change those that come in."""
    made_in: str
    """The store's incarnation in which the generation was made; empty where it stays."""


def _said(line: bytes) -> tuple[str, list[Heard]]:
    """The store's incarnation and the generations."""
    packed = line.find(_PACKED)
    found = _INCARNATION.search(line, 0, packed if packed >= 0 else len(line))
    generations = _heard(line) if packed < 0 else _unpacked(_Packed(line, packed + len(_PACKED)))
    return found[1].decode() if found else "", generations


def _heard(text: bytes) -> list[Heard]:
    cut = ((number, phase, rest.partition(_NODES)[0]) for number, phase, rest in _GENERATION.findall(text))
    return [
        Heard(number, phase, frozenset(_MEMBER.findall(rest)), found[1].decode() if found else "")
        for number, phase, rest in cut
        for found in [_INCARNATION.search(rest)]
    ]


class _Packed:
    """Packed lines inside a line: alike where their ends are, which hold a checksum of the whole."""

    def __init__(self, line: bytes, start: int) -> None:
        self.line, self.start, self.end = line, start, line.index(b'"', start)
        self._key = (self.end - start, line[max(start, self.end - _CHECKED) : self.end])

    @override
    def __hash__(self) -> int:
        return hash(self._key)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Packed) and other._key == self._key


@functools.lru_cache(maxsize=64)
def _unpacked(packed: _Packed) -> list[Heard]:
    """The generations in packed lines, which a thousand nodes in one process need to read only once."""
    return _heard(wire.unpack(packed.line[packed.start : packed.end].decode()))


@dataclass
class Light:
    """A node whose messages are real and whose workers are not there."""

    index: int
    end: socket.socket
    said: NodeRecord
    place: int
    """The number in its name."""
    incarnation: str = ""
    first: int = 0
    """The first generation that it can be in, once it has heard of the last one."""
    number: int = 0
    """The generation's, as last heard of."""
    made_in: str = ""
    """The store's incarnation in which that one was made."""
    pieces: list[bytes] = field(default_factory=list)
    """Of a line whose end has not come."""
    call: int = 0
    """Number of messages sent that are no beats."""
    beats: int = 0
    """Number of beats sent."""
    next_beat: float = 0.0
    received: int = 0
    """Number of bytes received."""
    sent: int = 0
    is_slow: bool = False
    """Whether it reads a few bytes at a time."""
    fails_next: bool = False
    """Whether a worker fails before its first step in the next generation."""
    has_lost: bool = False
    """Whether its connection, when it comes back, leads nowhere."""
    former: socket.socket | None = None
    """Its last connection, which stays open until the next one stands, as a real node's."""


@dataclass
class Lights:
    """All of them, in one thread."""

    port: int
    nodes: dict[int, Light] = field(default_factory=dict)
    frozen: dict[int, Light] = field(default_factory=dict)
    """Nodes that neither read nor beat, with their connections."""
    lost_connections: int = 0
    received: int = 0
    """Number of bytes that all nodes received, lost ones included."""
    sent: int = 0
    """Number of bytes that all nodes sent."""
    member_at: dict[tuple[int, int], float] = field(default_factory=dict)
    """When a node entered a generation, by index and number."""
    _next_look: float = 0.0
    """When beats are due again."""
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    @property
    def staying(self) -> list[int]:
        """The indices of the nodes that take part and were not told to end."""
        return sorted(index for index, node in self.nodes.items() if not node.said.leaving)

    def add(self, index: int, place: int | None = None) -> None:
        """Connect one node and say hello.

        Args:
            index: of the node; a new one for each process.
            place: the number in its name, where that is not its index.
        """
        place = index if place is None else place
        self._join(Light(index, self._connected(), record(index, place), place))

    def reconnect(self) -> None:
        """All nodes connect anew, to a store that was started again; frozen ones will once they come back."""
        for node in [*self.nodes.values()]:
            self._leave(node.index)
            node.end.close()
            self._connect_anew(node)
        for node in self.frozen.values():
            node.has_lost = True

    def lose(self, index: int, last: bytes = wire.FAREWELL) -> None:
        """The supervisor of a node says farewell, as after a crash of its agent or workers; or a machine is gone.

        Args:
            index: of the node.
            last: the last bytes on its connection; none from a machine that is gone.
        """
        node = self._leave(index)
        node.end.settimeout(SEND_SECONDS)
        node.end.sendall(last)
        node.end.close()

    def tell_to_end(self, index: int) -> None:
        """A node gets SIGTERM: it says so, and goes once its generation has stopped."""
        node = self.nodes[index]
        node.said = replace(node.said, leaving=True)
        if node.said.state == "member":
            self._publish(node)
        else:
            self._depart(node)

    def fail_next(self, index: int) -> None:
        """A worker of a node fails before its first step in the next generation."""
        self.nodes[index].fails_next = True

    def freeze(self, index: int, *, is_cut: bool = False) -> None:
        """A node falls silent: it neither reads nor beats, and the store sees no end of its connection.

        Args:
            index: of the node.
            is_cut: whether the network was at fault, so that the node comes back by a new connection.
        """
        node = self.frozen[index] = self._leave(index)
        node.has_lost = is_cut

    def thaw(self, index: int) -> None:
        """A node that the others went on without is back: it ends its workers and waits for a place."""
        node = self.frozen.pop(index)
        last = max((number for _, number in self.member_at), default=0)
        if not node.has_lost:
            self._join(node)
            self._begin_anew(node, last)
            return
        node.said, node.first, node.former = record(index, node.place), last + 1, node.end
        self._connect_anew(node)

    def leave_out(self, uuids: Iterable[str], number: int) -> None:
        """Those of these nodes that take part see that a generation has no place for them, and wait for another."""
        for node in [node for each in uuids if (node := self._by_uuid(each)) is not None]:
            self._begin_anew(node, number)

    def slow_down(self, index: int) -> None:
        """From now on a node reads a few bytes at a time."""
        node = self.nodes[index]
        if not node.is_slow:
            self._selector.unregister(node.end)
            node.is_slow = True

    def serve(self, seconds: float) -> None:
        """Answer what comes for so long."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for key, _ in self._selector.select(max(0.0, min(0.05, until - now))):
                self._read(key.data)
                self._beat()
            self._beat()
            if now >= until:
                return

    def _beat(self) -> None:
        """Send the beats that are due, also while many nodes have much to read: real ones have a processor each."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        for node in [*self.nodes.values()]:
            if node.is_slow:
                self._read(node)
            if node.index in self.nodes and now >= node.next_beat and node.incarnation:
                node.next_beat = now + wire.BEAT_SECONDS
                node.beats += 1
                self._send_bytes(node, wire.BEAT)

    def close(self) -> None:
        """Close the connections of all nodes, and the selector."""
        for node in (*self.nodes.values(), *self.frozen.values()):
            node.end.close()
        self._selector.close()

    def members(self, number: int) -> list[float]:
        """When each node entered a generation."""
        return [at for (_, generation), at in self.member_at.items() if generation == number]

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def _connect_anew(self, node: Light) -> None:
        node.end, node.incarnation, node.pieces, node.has_lost = self._connected(), "", [], False
        self._join(node)

    def _join(self, node: Light) -> None:
        """A node with a connection takes part."""
        if not node.incarnation:
            self._send(node, {"op": "hello", "job": JOB, "node": uuid(node.index), "token": ""})
        node.end.settimeout(0)
        node.next_beat = time.monotonic()
        self.nodes[node.index] = node
        if not node.is_slow:
            self._selector.register(node.end, selectors.EVENT_READ, node)

    def _begin_anew(self, node: Light, number: int) -> None:
        """A node that has no place in a generation ends its workers, and can be in the next one, or was told to end."""
        if node.said.leaving:
            self._depart(node)
            return
        before, node.said, node.first = node.said, record(node.index, node.place), number + 1
        if node.incarnation:
            self._stop(node, before)
            self._publish(node)

    def _depart(self, node: Light) -> None:
        """A node that was told to end has no workers any more: it says so, and its supervisor says farewell."""
        self._publish(node, replace(node.said, state="left"))
        self.lose(node.index)

    def _by_uuid(self, name: str) -> Light | None:
        return next((node for node in self.nodes.values() if node.said.uuid == name), None)

    def _leave(self, index: int) -> Light:
        """A node takes no part any more."""
        node = self.nodes.pop(index)
        if not node.is_slow:
            self._selector.unregister(node.end)
        return node

    def _read(self, node: Light) -> None:
        try:
            data = node.end.recv(SLOW_BYTES if node.is_slow else _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave(node.index).end.close()
            self.lost_connections += 1
            return
        node.received += len(data)
        self.received += len(data)
        if not node.pieces and data == wire.BEAT * (len(data) // len(wire.BEAT)):
            return
        end = data.rfind(b"\n")
        if end < 0:
            node.pieces.append(data)
            return
        text, node.pieces = b"".join([*node.pieces, data[:end]]), [data[end + 1 :]] if end + 1 < len(data) else []
        for line in text.split(b"\n") if _PACKED in text or not node.incarnation else [text]:
            self._hear(node, line)

    def _hear(self, node: Light, lines: bytes) -> None:
        incarnation, generations = _said(lines)
        if node.incarnation:
            self._follow(node, generations)
            return
        node.incarnation = incarnation or "?"
        if node.former is not None:
            node.former.close()
            node.former = None
        if not node.first:
            node.first = 1 + max([int(number) for number, *_ in generations], default=0)
            self._publish(node, replace(node.said, state="warming"))
        self._publish(node)
        self._follow(node, generations)

    def _follow(self, node: Light, seen: Iterable[Heard]) -> None:
        for digits, phase, named, made_in in seen:
            if self.nodes.get(node.index) is not node:  # what came before was the end of its last generation
                return
            node.number = number = int(digits or node.number)
            node.made_in = made_in or node.made_in
            is_newer = bool(digits) and number >= max(node.first, node.said.generation + 1)
            # A change of the members names a newcomer once, and survivors not at all.
            has_place = node.said.generation > 0 or node.said.uuid.encode() in named
            stops = phase in {b"draining", b"broken"}
            if (is_newer and has_place) or (number == node.said.generation and node.said.state == "member" and stops):
                self._end(node, number) if stops else self._enter(node, number)

    def _enter(self, node: Light, number: int) -> None:
        """A node takes its place in a generation; its workers make their first step at once, or one fails before."""
        if node.said.leaving:
            self._depart(node)
            return
        self.member_at[node.index, number] = time.monotonic()
        node.said = self._in(node, "member", number)
        self._publish(node)
        if node.fails_next:
            node.fails_next = False
            node.said = replace(node.said, state="stopped", failure=f"exit code 1 on {node.said.name}")
        else:
            node.said = replace(node.said, startup_seconds=STARTUP_SECONDS)
        self._publish(node)

    def _end(self, node: Light, number: int) -> None:
        """A node ends its workers; of a generation that ends before it has entered, it says that it stopped."""
        if node.said.generation == number:
            self._stop(node, node.said)
            node.said = replace(node.said, state="stopped")
        else:
            node.said = self._in(node, "stopped", number)
            self._publish(node)
        if node.said.leaving:
            self._depart(node)

    def _stop(self, node: Light, said: NodeRecord) -> None:
        if said.state == "member":
            self._publish(node, replace(said, state="draining"))
        self._publish(node, replace(said, state="stopped"))

    def _in(self, node: Light, state: NodeState, number: int) -> NodeRecord:
        return replace(
            node.said, state=state, generation=number, incarnation=node.made_in, startup_seconds=None, failure=""
        )

    def _publish(self, node: Light, said: NodeRecord | None = None) -> None:
        value = codec.to_json(said or node.said)
        self._send(node, {"op": "set", "key": keys.node_key(node.said.uuid), "value": value})

    def _send(self, node: Light, request: dict[str, object]) -> None:
        node.call += 1
        self._send_bytes(node, wire.encode({**request, "id": node.call}))

    def _send_bytes(self, node: Light, data: bytes) -> None:
        node.sent += len(data)
        self.sent += len(data)
        with contextlib.suppress(BlockingIOError):
            data = data[node.end.send(data) :]
        if data:
            node.end.settimeout(SEND_SECONDS)
            node.end.sendall(data)
            node.end.settimeout(0)
