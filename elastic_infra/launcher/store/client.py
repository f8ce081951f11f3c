"""One connection to the store: says hello, beats, carries orders out and reads notices."""

from __future__ import annotations

import collections
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from .. import codec
from ..protocol import actions, events
from . import keys, wire

CONNECT_SECONDS: Final = 3.0

Order = actions.CompareAndSet | actions.Publish | actions.PublishMaster


@dataclass(frozen=True)
class Target:
    """The store's address, and the credentials for it."""

    host: str
    port: int
    job: str
    node: str
    token: str = ""


@dataclass(frozen=True)
class Acknowledged:
    """The store answered the beat that was sent at this time."""

    sent_at: float


class LostError(Exception):
    """The connection is lost; ``by_peer``: the store's end was seen closing."""

    def __init__(self, reason: str, *, by_peer: bool) -> None:
        super().__init__(reason)
        self.by_peer = by_peer


class RefusalError(Exception):
    """The store answered hello with a refusal."""


def connect(target: Target, clock: Callable[[], float]) -> tuple[Session, list[events.Event | Acknowledged]]:
    """A connection that the store has accepted, and the store's first answer: all keys of the job.

    Raises:
        OSError, wire.WireError, UnicodeError: the store cannot be reached, or another program listens there.
        RefusalError: the store refuses this node.
    """
    end = socket.create_connection((target.host, target.port), timeout=CONNECT_SECONDS)
    try:
        return _introduce(end, target, clock)
    except (OSError, wire.WireError, RefusalError):
        end.close()
        raise


def _introduce(
    end: socket.socket, target: Target, clock: Callable[[], float]
) -> tuple[Session, list[events.Event | Acknowledged]]:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if end.getsockname() == end.getpeername():  # a free port of the ephemeral range connected to itself
        message = "nothing listens there"
        raise ConnectionRefusedError(message)
    sent_at = clock()
    end.sendall(wire.encode({
        "op": "hello", "id": 0, "job": target.job, "node": target.node, "token": target.token,
    }))  # fmt: skip
    lines = wire.Lines(wire.MAX_SNAPSHOT)
    hello, *notices = _until_first(end, lines, sent_at + CONNECT_SECONDS, clock)
    hello = _unpacked(hello)
    if "error" in hello:
        raise RefusalError(str(hello["error"]))
    session = Session(end, lines, keys.Mirror(), clock, sent_at)
    first: list[events.Event | Acknowledged] = [Acknowledged(sent_at)]
    first.append(session.mirror.connected(str(hello["incarnation"]), hello, clock()))
    return session, [*first, *(notification for notice in notices for notification in session.read(notice))]


class Session:
    """One connection that the store has accepted."""

    def __init__(
        self,
        end: socket.socket,
        lines: wire.Lines,
        mirror: keys.Mirror,
        clock: Callable[[], float],
        acknowledged_at: float,
    ) -> None:
        self.socket = end
        self.mirror = mirror
        self.acknowledged_at = acknowledged_at
        self._lines = lines
        self._clock = clock
        self._calls: dict[int, tuple[str, float]] = {}
        self._beats: collections.deque[float] = collections.deque()
        """When each beat without an answer was sent."""
        self._last_id = 0
        self._heard_at = acknowledged_at
        """When the last bytes came: a store that sends a change to thousands of nodes is slow, not lost."""
        self._next_beat = clock()  # the first beat makes this connection the node's

    def wait(self) -> float:
        """Seconds until the next beat or deadline."""
        due = [self._next_beat]
        if self._calls or self._beats:
            due.append(max(self._heard_at, self._oldest()) + wire.CALL_SECONDS)
        return max(0.0, min(due) - self._clock())

    def carry_out(self, order: Order) -> None:
        """Send the call of an order."""
        if isinstance(order, actions.CompareAndSet):
            value = codec.to_json(order.generation) if order.generation else None
            self._call("compare_and_set", key=keys.GENERATION, value=value, version=order.version)
        elif isinstance(order, actions.Publish):
            self._call("set", key=keys.node_key(order.record.uuid), value=codec.to_json(order.record))
        else:
            number = order.master.generation
            self._call("set", key=keys.master_key(number), value=codec.to_json(order.master))
            self._call("delete", key=keys.master_key(number - 2))

    def beat(self) -> None:
        """Beat when it is time; raise ``LostError`` when a call was not answered in time."""
        now = self._clock()
        if now - max(self._oldest(), self._heard_at) >= wire.CALL_SECONDS:
            message = f"the store did not answer for {wire.CALL_SECONDS:g} s"
            raise LostError(message, by_peer=False)
        if now >= self._next_beat:
            self._next_beat = now + wire.BEAT_SECONDS
            self._beats.append(now)
            self._send(wire.BEAT)

    def receive(self) -> list[events.Event | Acknowledged]:
        """Read once, and return the messages as notifications."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return []
        except OSError as error:
            raise LostError(why(error), by_peer=isinstance(error, ConnectionResetError)) from error
        if not data:
            message = "the store closed the connection"
            raise LostError(message, by_peer=True)
        self._heard_at = self._clock()
        try:
            return [notification for message in self._lines.feed(data) for notification in self.read(message)]
        except wire.WireError as error:
            raise LostError(str(error), by_peer=False) from error

    def read(self, message: dict[str, object]) -> list[events.Event | Acknowledged]:
        """One message as notifications."""
        if message.get("event") == "snapshot":  # the store sends a snapshot where this connection had fallen behind
            return [self.mirror.connected(str(message["incarnation"]), _unpacked(message), self._clock())]
        if message.get("event") == "notices":
            packed = wire.unpack(str(message["packed"]))
            notices = map(wire.decode, packed.splitlines())
            return [event for notice in notices for event in self.mirror.noticed(notice, self._clock())]
        if "event" in message:
            return list(self.mirror.noticed(message, self._clock()))
        if message.get("op") == "beat" and self._beats:
            self.acknowledged_at = self._beats.popleft()
            return [Acknowledged(self.acknowledged_at)]
        kind, _ = self._calls.pop(cast("int", message.get("id")), ("", 0.0))
        if kind == "compare_and_set":
            return [events.CompareAndSetDone(message.get("succeeded") is True)]
        return []

    def _call(self, operation: str, **fields: object) -> None:
        self._last_id += 1
        self._calls[self._last_id] = (operation, self._clock())
        self._send(wire.encode({"op": operation, "id": self._last_id, **fields}))

    def _oldest(self) -> float:
        """When the oldest message without an answer was sent; now, where there is none."""
        return min([*(sent_at for _, sent_at in self._calls.values()), *self._beats], default=self._clock())

    def _send(self, data: bytes) -> None:
        self.socket.settimeout(wire.CALL_SECONDS)
        try:
            self.socket.sendall(data)
        except OSError as error:
            by_peer = isinstance(error, ConnectionResetError | BrokenPipeError)
            raise LostError(why(error), by_peer=by_peer) from error


def _unpacked(message: dict[str, object]) -> dict[str, object]:
    """A snapshot with its members, which a large job's store packs."""
    return {**message, **wire.decode(wire.unpack(str(message["packed"])))} if "packed" in message else message


def _until_first(
    end: socket.socket, lines: wire.Lines, deadline: float, clock: Callable[[], float]
) -> list[dict[str, object]]:
    """The answer to hello with the messages behind it; raises ``OSError`` where no answer comes in time."""
    while True:
        end.settimeout(max(0.01, deadline - clock()))
        data = end.recv(1 << 18)
        if not data:
            message = "what listens there is no store of ours: it closed the connection"
            raise ConnectionError(message)
        received = list(lines.feed(data))
        if received and not ("incarnation" in received[0] or "error" in received[0]):
            message = "what listens there is no store of ours"
            raise ConnectionError(message)
        if received:
            return received


def why(error: BaseException) -> str:
    """The reason of a failure, as part of a sentence about the store."""
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
