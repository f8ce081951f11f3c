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
from typing import Final

from typing_extensions import override

from elastic_infra.launcher import codec
from elastic_infra.launcher.protocol.records import NodeRecord
from elastic_infra.launcher.store import keys, wire

JOB: Final = "rendezvous"
WORKERS: Final = 8
_GENERATION: Final = re.compile(
    rb'"gen"(?:,"version":|:\[)\d+,(?:"value":)?\{(?:"number":(\d+),)?(?:"phase":"(\w+)")?([^\n]*)'
)
"""In a notice and in a snapshot, with the rest of the line. A change has no number where the number stays; a phase that
is left out is ``running`` in a generation with a new number."""
_INCARNATION: Final = re.compile(rb'"incarnation":"(\w+)"')
_PACKED: Final = b'"packed":"'
_CHECKED: Final = 64
"""Bytes of a packed text by which it is known: its last ones hold zlib's checksum."""
_READ: Final = 1 << 18
SEND_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.1


def uuid(index: int) -> str:
    """Of the node with this index, as random as a real one; the probe is the first."""
    return hashlib.md5(str(index).encode(), usedforsecurity=False).hexdigest()


def record(index: int) -> NodeRecord:
    """What a node says of itself once it is ready."""
    name = f"elastic-job-worker-{index}"
    return NodeRecord(uuid(index), name, "ready", WORKERS, index, "10.0.0.1", joined=1_700_000_000_000 + index)


def _said(line: bytes) -> tuple[str, list[tuple[bytes, bytes, bytes]]]:
    """The store's incarnation and the generations."""
    packed = line.find(_PACKED)
    found = _INCARNATION.search(line, 0, packed if packed >= 0 else len(line))
    generations = _GENERATION.findall(line) if packed < 0 else _unpacked(_Packed(line, packed + len(_PACKED)))
    return found[1].decode() if found else "", generations


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
def _unpacked(packed: _Packed) -> list[tuple[bytes, bytes, bytes]]:
    """The generations in packed lines, which a thousand nodes in one process need to read only once."""
    return _GENERATION.findall(wire.unpack(packed.line[packed.start : packed.end].decode()))


@dataclass
class Light:
    """A node whose messages are real and whose workers are not there."""

    index: int
    end: socket.socket
    said: NodeRecord
    incarnation: str = ""
    first: int = 1
    """The first generation that it can be in."""
    number: int = 0
    """The generation's, as last heard of."""
    pieces: list[bytes] = field(default_factory=list)
    """Of a line whose end has not come."""
    call: int = 0
    next_beat: float = 0.0
    received: int = 0
    """Number of bytes received."""
    sent: int = 0


@dataclass
class Lights:
    """All of them, in one thread."""

    port: int
    nodes: dict[int, Light] = field(default_factory=dict)
    lost_connections: int = 0
    received: int = 0
    """Number of bytes that all nodes received, lost ones included."""
    member_at: dict[tuple[int, int], float] = field(default_factory=dict)
    """When a node entered a generation, by index and number."""
    _next_look: float = 0.0
    """When beats are due again."""
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def add(self, index: int) -> None:
        """Connect one node and say hello."""
        node = Light(index, socket.create_connection(("127.0.0.1", self.port), timeout=60), record(index))
        self._send(node, {"op": "hello", "job": JOB, "node": uuid(index), "token": ""})
        node.end.settimeout(0)
        node.next_beat = time.monotonic()
        self.nodes[index] = node
        self._selector.register(node.end, selectors.EVENT_READ, node)

    def lose(self, index: int, last: bytes = wire.FAREWELL) -> None:
        """The supervisor of a node says farewell, as after a crash of its agent or workers; or a machine is gone.

        Args:
            index: of the node.
            last: the last bytes on its connection; none from a machine that is gone.
        """
        node = self.nodes.pop(index)
        self._selector.unregister(node.end)
        node.end.settimeout(SEND_SECONDS)
        node.end.sendall(last)
        node.end.close()

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
        for node in self.nodes.values():
            if now >= node.next_beat and node.incarnation:
                node.next_beat = now + wire.BEAT_SECONDS
                self._send_bytes(node, wire.BEAT)

    def close(self) -> None:
        """Close the connections of all nodes, and the selector."""
        for node in self.nodes.values():
            node.end.close()
        self._selector.close()

    def members(self, number: int) -> list[float]:
        """When each node entered a generation."""
        return [at for (_, generation), at in self.member_at.items() if generation == number]

    def _read(self, node: Light) -> None:
        try:
            data = node.end.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(node.end)
            node.end.close()
            del self.nodes[node.index]
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
        node.number = max([int(number) for number, *_ in generations], default=0)
        node.first = node.number + 1
        self._publish(node)

    def _follow(self, node: Light, seen: Iterable[tuple[bytes, bytes, bytes]]) -> None:
        for digits, phase, rest in seen:
            node.number = number = int(digits or node.number)
            is_newer = bool(digits) and number >= max(node.first, node.said.generation + 1)
            # A change of the members names a newcomer once, and survivors not at all.
            has_place = node.said.generation > 0 or node.said.uuid.encode() in rest
            if phase in {b"", b"running"} and is_newer and has_place:
                self.member_at[node.index, number] = time.monotonic()
                node.said = replace(node.said, state="member", generation=number, incarnation=node.incarnation)
                self._publish(node)
            elif phase in {b"draining", b"broken"} and number == node.said.generation and node.said.state == "member":
                node.said = replace(node.said, state="stopped")
                self._publish(node)

    def _publish(self, node: Light) -> None:
        self._send(node, {"op": "set", "key": keys.node_key(node.said.uuid), "value": codec.to_json(node.said)})

    def _send(self, node: Light, request: dict[str, object]) -> None:
        self._send_bytes(node, wire.encode({**request, "id": node.call}))

    def _send_bytes(self, node: Light, data: bytes) -> None:
        node.call += 1
        node.sent += len(data)
        with contextlib.suppress(BlockingIOError):
            data = data[node.end.send(data) :]
        if data:
            node.end.settimeout(SEND_SECONDS)
            node.end.sendall(data)
            node.end.settimeout(0)
