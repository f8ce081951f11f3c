"""One job's keys and nodes in the server's memory, and the checked fields of a request. No I/O, no clock.

Every method that changes the keyspace returns the notices that all watchers of the job must get, in order.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from . import wire

Json = object
Notice = dict[str, object]

MAX_KEYS: Final = 20_000
"""A job never needs more keys: the bound limits the memory that a hostile client can take."""
MAX_KEY: Final = 256
"""The longest key, in characters."""
NODE_PREFIX: Final = "node/"


class RefusedError(ValueError):
    """A request that the server refuses; the message says why."""


State = Literal["live", "silent", "disconnected", "ended"]
"""A node's state, as ``protocol.events.Presence``."""


@dataclass
class Presence:
    """When the last message of a node came, and whether a connection of the node stands."""

    heard: float
    state: State = "live"
    since: float = 0.0
    """When the state began; for a disconnected node that was silent before, when the silence began."""
    arrived: int = 0
    """The store's count of arrivals and disconnections at the node's first arrival: whether a namesake came after a
    node had gone must not depend on the clocks of two machines."""
    departed: int = 0
    """The count when its connection last ended; 0 before that."""

    def to_json(self, node: str) -> bytes:
        """This node's member of a snapshot."""
        return b"%b:%b" % (wire.to_json(node), wire.to_json([self.state, self.since, self.arrived, self.departed]))


@dataclass(frozen=True)
class Encoded:
    """A value with its JSON text and its size, both computed once for the check of the room and for snapshots."""

    value: Json
    text: bytes
    memory: int
    """Bytes as text and as Python objects, which take many times the text where it is full of brackets."""

    @classmethod
    def of(cls, value: Json) -> Encoded:
        """The value with its text, which is made once for all readers, and its size in memory."""
        text = wire.to_json(value)
        size, level = len(text), [value]
        while level:
            size += sum(sys.getsizeof(each) for each in level)
            level = [child for parent in level for child in wire.children(parent)]
        return cls(value, text, size)


@dataclass
class Keyspace:
    """The keys and the presences of one job's nodes."""

    entries: dict[str, tuple[int, Json]] = field(default_factory=dict)
    presences: dict[str, Presence] = field(default_factory=dict)
    left: float = 0.0
    """When a connection of this job last ended."""
    memory: int = 0
    """Bytes that the entries occupy."""
    _version: int = 0
    _moves: int = 0
    """Arrivals and disconnections so far."""
    _memory: dict[str, int] = field(default_factory=dict)
    _entries_json: dict[str, bytes] = field(default_factory=dict)
    """Each entry as a snapshot's member: a thousand nodes that connect at once each get all of them."""
    _presences_json: dict[str, bytes] = field(default_factory=dict)
    """Each presence as a snapshot's member, where it was asked for since its last change."""

    @property
    def is_empty(self) -> bool:
        """Whether the keyspace can be dropped without a loss."""
        return not self.entries and not self.presences

    def growth(self, key: str, encoded: Encoded) -> int:
        """Bytes that setting ``key`` would add."""
        return _memory_of(key, encoded) - self._memory.get(key, 0)

    def compare_and_set(self, key: str, encoded: Encoded, version: int) -> tuple[bool, list[Notice]]:
        """Set ``key`` if it has ``version`` (0: does not exist); a value of None deletes it."""
        if self.entries.get(key, (0, None))[0] != version:
            return False, []
        if encoded.value is None:
            self.delete(key)
            return True, [{"event": "deleted", "key": key}]
        return True, self.put(key, encoded)

    def put(self, key: str, encoded: Encoded) -> list[Notice]:
        """Set ``key``.

        Raises:
            RefusedError: there are too many keys.
        """
        if key not in self.entries and len(self.entries) >= MAX_KEYS:
            message = f"a job may have {MAX_KEYS} keys"
            raise RefusedError(message)
        _, former = self.entries.get(key, (0, None))
        self._version += 1
        self.entries[key] = (self._version, encoded.value)
        self._entries_json[key] = b"%b:[%d,%b]" % (wire.to_json(key), self._version, encoded.text)
        self.memory += self.growth(key, encoded)
        self._memory[key] = _memory_of(key, encoded)
        if isinstance(former, dict) and isinstance(encoded.value, dict):
            return [self._changed(key, former, encoded.value)]
        return [{"event": "set", "key": key, "version": self._version, "value": encoded.value}]

    def delete(self, key: str) -> list[Notice]:
        """Delete ``key``, if it is there."""
        self.memory -= self._memory.pop(key, 0)
        self._entries_json.pop(key, None)
        return [] if self.entries.pop(key, None) is None else [{"event": "deleted", "key": key}]

    def heard(self, node: str, now: float) -> list[Notice]:
        """Take down that a message of this node came."""
        if node not in self.presences:
            self.presences[node] = Presence(now, "disconnected", now, arrived=self._move())
        presence = self.presences[node]
        presence.heard = now
        return self._become(node, presence, "live", now)

    def disconnected(self, node: str, now: float) -> list[Notice]:
        """Take down that the connection of this node ended, by a crash or by a device on the way."""
        presence = self.presences.get(node)
        if presence is None or presence.state in {"disconnected", "ended"}:
            return []
        presence.departed = self._move()
        self._presences_json.pop(node, None)
        return self._become(node, presence, "disconnected", now)

    def ended(self, node: str, now: float) -> list[Notice]:
        """Take down that the supervisor of this node said farewell: none of its workers is left."""
        presence = self.presences.get(node)
        return [] if presence is None else self._become(node, presence, "ended", now)

    def awaits(self, now: float, seconds: float) -> bool:
        """Whether a node lost its connection so recently that it may connect again."""
        return any(p.state == "disconnected" and now - p.since < seconds for p in self.presences.values())

    def grow_silent(self, now: float, silence_seconds: float) -> list[Notice]:
        """Mark connected nodes silent from which no message has come for so long."""
        notices: list[Notice] = []
        for node, presence in self.presences.items():
            if presence.state == "live" and now - presence.heard >= silence_seconds:
                notices += self._become(node, presence, "silent", now)
        return notices

    def forget(self, now: float, keep: Mapping[State, float], connected: Collection[str] = ()) -> list[Notice]:
        """Drop nodes that have been gone for so long, with their records; nodes without a record at once.

        Args:
            now: the server's clock.
            keep: seconds for which a node in this state is kept.
            connected: nodes that have a connection.
        """
        old = [
            node
            for node, presence in self.presences.items()
            if presence.state != "live"
            and node not in connected
            and (now - presence.since >= keep[presence.state] or NODE_PREFIX + node not in self.entries)
        ]
        notices: list[Notice] = []
        for node in old:
            del self.presences[node]
            self._presences_json.pop(node, None)
            notices += self.delete(NODE_PREFIX + node)
        return notices

    def snapshot(self, now: float) -> bytes:
        """All keys and presences, as members of a JSON object; ``since`` and ``clock`` share a clock."""
        for node in self.presences.keys() - self._presences_json.keys():
            self._presences_json[node] = self.presences[node].to_json(node)
        entries, presences = (b",".join(parts.values()) for parts in (self._entries_json, self._presences_json))
        return b'"entries":{%b},"presences":{%b},"clock":%b' % (entries, presences, wire.to_json(now))

    def _changed(self, key: str, former: dict[str, Json], value: dict[str, Json]) -> Notice:
        """Only what differs from the former value: a member list of a thousand nodes outlives most changes.

        A node is named by the number of its arrival, and without a version, so that the same change of many nodes is
        one notice; only ``gen`` is changed by compare-and-set.
        """
        new = {name: each for name, each in value.items() if name not in former or not _is_same(former[name], each)}
        arrays = {name: (former.get(name), each) for name, each in new.items()}
        spliced = {
            name: _splice(was, each)
            for name, (was, each) in arrays.items()
            if isinstance(was, list) and isinstance(each, list)
        }
        notice: Notice = {
            "event": "changed",
            "value": {name: each for name, each in new.items() if name not in spliced},
        }
        if former.keys() - value.keys():
            notice["dropped"] = sorted(former.keys() - value.keys())
        if spliced:
            notice["spliced"] = spliced
        presence = self.presences.get(key.removeprefix(NODE_PREFIX)) if key.startswith(NODE_PREFIX) else None
        if presence is not None:
            return {**notice, "node": presence.arrived}
        return {"event": "changed", "key": key, "version": self._version, **notice}

    def _move(self) -> int:
        self._moves += 1
        return self._moves

    def _become(self, node: str, presence: Presence, state: State, now: float) -> list[Notice]:
        if presence.state in {state, "ended"}:  # a node that ended never comes back: a node is one launcher
            return []
        still_away = presence.state == "silent" and state == "disconnected"
        presence.since = presence.since if still_away else now
        presence.state = state
        self._presences_json.pop(node, None)
        counts = {"arrived": presence.arrived, "departed": presence.departed}
        return [{"event": "presence", "node": node, "presence": state, **counts}]


def _splice(former: list[Json], value: list[Json]) -> list[Json]:
    """How an array came out of another: the place of the change, the number of values removed there, and those put in.

    A node that is lost or comes is one of a thousand members.
    """
    shorter, front, back = min(len(former), len(value)), 0, 0
    while front < shorter and _is_same(former[front], value[front]):
        front += 1
    while back < shorter - front and _is_same(former[-1 - back], value[-1 - back]):
        back += 1
    return [front, len(former) - front - back, value[front : len(value) - back]]


def _is_same(one: Json, other: Json) -> bool:
    """Whether two values are the same as JSON; Python takes 1, 1.0 and true for equal."""
    if one != other or type(one) is not type(other):
        return False
    return isinstance(one, str | int | None) or wire.to_json(one) == wire.to_json(other)


def _memory_of(key: str, encoded: Encoded) -> int:
    return sys.getsizeof(key) + len(key) + encoded.memory


def key_of(request: Mapping[str, object]) -> str:
    """The key in the request."""
    name = request.get("key")
    if isinstance(name, str) and 0 < len(name) <= MAX_KEY:
        return name
    message = f"a key is a string of 1 to {MAX_KEY} characters"
    raise RefusedError(message)


def value_of(request: Mapping[str, object]) -> object:
    """The value in the request."""
    given = request.get("value")
    if given is not None:
        return given
    message = "a value is missing"
    raise RefusedError(message)


def version_of(request: Mapping[str, object]) -> int:
    """The version that a compare-and-set expects."""
    number = request.get("version")
    if isinstance(number, int):
        return number
    message = "a version is a number"
    raise RefusedError(message)
