"""The store's keys and notices as the protocol's events. Unreadable values are left out: no launcher wrote them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from .. import codec
from ..protocol import events, records

GENERATION: Final = "gen"
_NODE: Final = "node/"
_Value = records.Generation | records.NodeRecord | records.Master
_PRESENCES: Final[tuple[events.Presence, ...]] = ("live", "silent", "disconnected", "ended")


def node_key(uuid: str) -> str:
    """The key of a node's record."""
    return _NODE + uuid


def master_key(number: int) -> str:
    """The key of a generation's meeting place for the workers."""
    return f"gen/{number}/master"


@dataclass(frozen=True)
class _Presence:
    """The fields of ``events.Peer`` beside the record."""

    state: events.Presence
    since: float
    arrived: int = 0
    departed: int = 0


class Mirror:
    """The store's content, joined to peers: a node's record and presence arrive separately, and changes as such."""

    def __init__(self) -> None:
        self._values: dict[str, Mapping[str, object]] = {}
        """Every value that is an object, by key, so that a change of it can be read."""
        self._found: dict[str, _Value] = {}
        """The same as records, without those that are none."""
        self._records: dict[str, records.NodeRecord] = {}
        """The last readable record of each node, by uuid."""
        self._presences: dict[str, _Presence] = {}
        self._nodes: dict[int, str] = {}
        """Nodes by the number of their arrival."""

    def connected(self, incarnation: str, snapshot: Mapping[str, object], now: float) -> events.StoreConnected:
        """The event for the snapshot with which a new connection begins."""
        for kept in (self._values, self._found, self._records, self._presences, self._nodes):
            kept.clear()
        generation, version, master = None, 0, None
        entries = cast("Mapping[str, list[object]]", snapshot.get("entries", {}))
        for key, (at, value) in entries.items():
            found = self._take(key, value, _parse(key, value))
            if isinstance(found, records.Generation):
                generation, version = found, cast("int", at)
            elif isinstance(found, records.NodeRecord):
                self._records[found.uuid] = found
            elif isinstance(found, records.Master) and (master is None or found.generation > master.generation):
                master = found
        presences = cast("Mapping[str, list[object]]", snapshot.get("presences", {}))
        clock = cast("float", snapshot.get("clock", 0.0))
        for node, (state, since, *counts) in presences.items():
            self._note_presence(node, state, now - (clock - cast("float", since)), counts)
        peers = tuple(self._peer(uuid, now) for uuid in self._records)
        unix_time = cast("float", snapshot.get("unix_time", 0.0))
        return events.StoreConnected(incarnation, generation, version, peers, master, unix_time)

    def noticed(self, notice: Mapping[str, object], now: float) -> Iterator[events.Event]:
        """The events of one notice."""
        key, kind = str(notice.get("key", "")), notice.get("event")
        if kind == "presence":
            yield from self._moved(notice, now)
        elif kind == "set":
            value = notice.get("value")
            yield from self._set(self._take(key, value, _parse(key, value)), notice, now)
        elif kind == "changed":
            numbers = itertools.accumulate(cast("list[int]", notice.get("gaps", [])))
            for changed in [node_key(self._nodes.get(number, "")) for number in numbers] or [key]:
                yield from self._set(self._change(changed, notice), notice, now)
        elif kind == "deleted":
            yield from self._deleted(key)

    def _moved(self, notice: Mapping[str, object], now: float) -> Iterator[events.Event]:
        node = str(notice.get("node"))
        self._note_presence(node, notice.get("presence"), now, (notice.get("arrived"), notice.get("departed")))
        if node in self._records:
            yield events.PeerSeen(self._peer(node, now))

    def _deleted(self, key: str) -> Iterator[events.Event]:
        self._take(key, None, None)
        if key == GENERATION:
            yield events.GenerationSeen(None, 0)
        elif self._records.pop(key.removeprefix(_NODE), None) is not None:
            yield events.PeerForgotten(key.removeprefix(_NODE))

    def _set(self, found: _Value | None, notice: Mapping[str, object], now: float) -> Iterator[events.Event]:
        if isinstance(found, records.Generation):
            yield events.GenerationSeen(found, cast("int", notice["version"]))
        elif isinstance(found, records.NodeRecord):
            self._records[found.uuid] = found
            yield events.PeerSeen(self._peer(found.uuid, now))
        elif isinstance(found, records.Master):
            yield events.MasterSeen(found)

    def _change(self, key: str, notice: Mapping[str, object]) -> _Value | None:
        """Take a change of a value down; only what has changed is read where the former value was readable."""
        before = self._values.get(key)
        if before is None:
            return None
        changes = cast("Mapping[str, object]", notice["value"])
        dropped = cast("list[str]", notice.get("dropped", []))
        spliced = cast("Mapping[str, tuple[int, int, list[object]]]", notice.get("spliced", {}))
        value = {name: each for name, each in {**before, **changes}.items() if name not in dropped}
        for name, (at, removed, values) in spliced.items():
            was = cast("list[object]", before[name])
            value[name] = [*was[:at], *values, *was[at + removed :]]
        found = self._found.get(key)
        try:
            found = codec.changed(found, changes, dropped, spliced) if found is not None else _parse(key, value)
        except TypeError:
            found = None
        return self._take(key, value, found if _is_at(key, found) else None)

    def _take(self, key: str, value: object, found: _Value | None) -> _Value | None:
        """Keep the present value of a key; returns its record."""
        self._values.pop(key, None)
        self._found.pop(key, None)
        if isinstance(value, Mapping):
            self._values[key] = value
        if found is not None:
            self._found[key] = found
        return found

    def _note_presence(self, node: str, presence: object, since: float, counts: Sequence[object]) -> None:
        known = next((word for word in _PRESENCES if word == presence), None)
        if known is None:
            return
        before = self._presences.get(node)
        if known == "disconnected" and before is not None and before.state == "silent":
            since = before.since
        after = _Presence(known, since, *(count for count in counts if isinstance(count, int)))
        self._presences[node] = after
        self._nodes[after.arrived] = node

    def _peer(self, uuid: str, now: float) -> events.Peer:
        presence = self._presences.get(uuid, _Presence("live", now))
        return events.Peer(self._records[uuid], presence.state, presence.since, presence.arrived, presence.departed)


def _parse(key: str, value: object) -> _Value | None:
    if not isinstance(value, Mapping):
        return None
    try:
        if key == GENERATION:
            return codec.from_json(records.Generation, value)
        if key.startswith(_NODE):
            found = codec.from_json(records.NodeRecord, value)
            return found if _is_at(key, found) else None
        if key.startswith("gen/") and key.endswith("/master"):
            return codec.from_json(records.Master, value)
    except (TypeError, ValueError):
        return None
    return None


def _is_at(key: str, found: _Value | None) -> bool:
    """Whether a record may be the value of this key: a node writes its own only."""
    return not isinstance(found, records.NodeRecord) or node_key(found.uuid) == key
