"""The store's keys and notices as the protocol's events. Unreadable values are left out: no launcher wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from .. import codec
from ..protocol import events, records

GENERATION: Final = "gen"
_NODE: Final = "node/"
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
    """The store's content, joined to peers: a node's record and presence arrive separately."""

    def __init__(self) -> None:
        self._records: dict[str, records.NodeRecord] = {}
        self._presences: dict[str, _Presence] = {}

    def connected(self, incarnation: str, snapshot: Mapping[str, object], now: float) -> events.StoreConnected:
        """The event for the snapshot with which a new connection begins."""
        self._records.clear()
        self._presences.clear()
        entries = cast("Mapping[str, list[object]]", snapshot.get("entries", {}))
        generation, version, master = None, 0, None
        for key, (at, value) in entries.items():
            found = _parse(key, value)
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
            node = str(notice.get("node"))
            self._note_presence(node, notice.get("presence"), now, (notice.get("arrived"), notice.get("departed")))
            if node in self._records:
                yield events.PeerSeen(self._peer(node, now))
        elif kind == "set":
            yield from self._set(key, notice, now)
        elif kind == "deleted" and key == GENERATION:
            yield events.GenerationSeen(None, 0)
        elif kind == "deleted" and self._records.pop(key.removeprefix(_NODE), None) is not None:
            yield events.PeerForgotten(key.removeprefix(_NODE))

    def _set(self, key: str, notice: Mapping[str, object], now: float) -> Iterator[events.Event]:
        found = _parse(key, notice.get("value"))
        if isinstance(found, records.Generation):
            yield events.GenerationSeen(found, cast("int", notice["version"]))
        elif isinstance(found, records.NodeRecord):
            self._records[found.uuid] = found
            yield events.PeerSeen(self._peer(found.uuid, now))
        elif isinstance(found, records.Master):
            yield events.MasterSeen(found)

    def _note_presence(self, node: str, presence: object, since: float, counts: Sequence[object]) -> None:
        known = next((word for word in _PRESENCES if word == presence), None)
        if known is None:
            return
        before = self._presences.get(node)
        if known == "disconnected" and before is not None and before.state == "silent":
            since = before.since
        self._presences[node] = _Presence(known, since, *(count for count in counts if isinstance(count, int)))

    def _peer(self, uuid: str, now: float) -> events.Peer:
        presence = self._presences.get(uuid, _Presence("live", now))
        return events.Peer(self._records[uuid], presence.state, presence.since, presence.arrived, presence.departed)


def _parse(key: str, value: object) -> records.Generation | records.NodeRecord | records.Master | None:
    if not isinstance(value, Mapping):
        return None
    try:
        if key == GENERATION:
            return codec.from_json(records.Generation, value)
        if key.startswith(_NODE):
            found = codec.from_json(records.NodeRecord, value)
            return found if node_key(found.uuid) == key else None
        if key.startswith("gen/") and key.endswith("/master"):
            return codec.from_json(records.Master, value)
    except (TypeError, ValueError):
        return None
    return None
