"""What real clients send to the store and to the status port, and the same with random damage.

Pure but for a socket pair, from which the client's own bytes are read.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from typing import Final

from elastic_infra.launcher.protocol import actions, records
from elastic_infra.launcher.store import client, keys, wire

MEMBERS = tuple(records.Member(f"node-{number}", f"node-{number}", 8) for number in range(4))
GENERATION = records.Generation(3, members=MEMBERS, incarnation="e")
ORDERS: Final = (
    actions.Publish(records.NodeRecord("node-0", "pod-0", "ready")),
    actions.CompareAndSet(GENERATION, 0),
    actions.CompareAndSet(None, 1),
    actions.PublishMaster(records.Master(3, "e", "10.0.0.1", 29500)),
)
REQUESTS: Final = tuple(
    f"GET {path} HTTP/1.1\r\nHost: node:9000\r\nUser-Agent: Prometheus/3.0\r\nAccept: */*\r\n\r\n".encode()
    for path in ("/metrics", "/healthz", "/status", "/other")
)
TRICKS: Final = (
    b'"\\ud800"',
    b"[" * 900,
    b"{" * 40,
    b'{"a":' * 400,
    b"1e999",
    b"NaN",
    b"9" * 5000,
    b"-1",
    b"null",
    b"\x00",
    b"\n",
    b"\r\n\r\n",
    b"\xed\xa0\x80",
    b'""',
    b"x" * 70_000,
    b"[]," * 20_000,
)
"""What has broken parsers, here and elsewhere."""

Damage = Callable[[random.Random, bytes], bytes]


def of_a_node(token: str) -> bytes:
    """Everything that a node sends, from hello on."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = client.Session(ours, wire.Lines(), keys.Mirror(), time.monotonic, 0.0)
        for order in ORDERS:
            session.carry_out(order)
        session.beat()
        ours.shutdown(socket.SHUT_WR)
        sent = b"".join(iter(lambda: theirs.recv(1 << 16), b""))
    hello = {"op": "hello", "id": 0, "job": "job", "node": "node-0", "token": token}
    asked = [{"op": "get", "id": 90 + at, "key": key} for at, key in enumerate(("gen", "node/node-0", "nothing"))]
    return b"".join([wire.encode(hello), sent, *map(wire.encode, asked)])


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The same bytes with up to three kinds of damage; sometimes none, so that what follows a good start is met too."""
    for _ in range(chance.randrange(4)):
        data = chance.choice(DAMAGES)(chance, data)
    return data


def _flipped(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _cut(chance: random.Random, data: bytes) -> bytes:
    start, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    return data[:start] + data[end:]


def _repeated(chance: random.Random, data: bytes) -> bytes:
    start, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    return data[:end] + data[start:end] * chance.randrange(1, 20) + data[end:]


def _tricked(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(TRICKS) + data[at:]


def _replaced(chance: random.Random, data: bytes) -> bytes:
    """A value or a name of a message becomes something else: the line stays JSON more often than not."""
    words = [word for word in (b'"job"', b'"node-0"', b'"gen"', b'"set"', b"0", b"1", b"[", b'"value"') if word in data]
    return data.replace(chance.choice(words), chance.choice(TRICKS), 1) if words else data


def _shuffled(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


DAMAGES: Final[tuple[Damage, ...]] = (_flipped, _cut, _repeated, _tricked, _replaced, _shuffled)
