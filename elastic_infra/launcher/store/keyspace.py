"""One job's keys and nodes as the server holds them, and the checked fields of a request. No I/O, no clock.

Every method that changes something returns the notices that all watchers of the job must get, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Json = object
Notice = dict[str, object]

MAX_KEYS: Final = 20_000
"""A job never needs more: a bound for what a stranger can make the server remember."""
MAX_KEY: Final = 256
"""Characters of a key."""
NODE_PREFIX: Final = "node/"


class RefusedError(ValueError):
    """A request that cannot be granted; the message says why."""


@dataclass
class Presence:
    """When a node was last heard, and whether a connection of it stands."""

    heard: float
    state: Literal["live", "silent", "closed"] = "live"
    since: float = 0.0


@dataclass
class Keyspace:
    """What the nodes of one job share."""

    entries: dict[str, tuple[int, Json]] = field(default_factory=dict)
    presences: dict[str, Presence] = field(default_factory=dict)
    _version: int = 0

    def compare_and_set(self, key: str, value: Json, version: int) -> tuple[bool, list[Notice]]:
        """Set ``key`` if it has ``version`` (0: does not exist); a value of None deletes it."""
        if self.entries.get(key, (0, None))[0] != version:
            return False, []
        if value is None:
            self.entries.pop(key, None)
            return True, [{"event": "deleted", "key": key}]
        return True, self.put(key, value)

    def put(self, key: str, value: Json) -> list[Notice]:
        """Set ``key``.

        Raises:
            RefusedError: there are too many keys.
        """
        if key not in self.entries and len(self.entries) >= MAX_KEYS:
            message = f"a job may have {MAX_KEYS} keys"
            raise RefusedError(message)
        self._version += 1
        self.entries[key] = (self._version, value)
        return [{"event": "set", "key": key, "version": self._version, "value": value}]

    def delete(self, key: str) -> list[Notice]:
        """Forget ``key``."""
        return [] if self.entries.pop(key, None) is None else [{"event": "deleted", "key": key}]

    def heard(self, node: str, now: float) -> list[Notice]:
        """A message of this node came."""
        presence = self.presences.setdefault(node, Presence(now, "closed", now))
        presence.heard = now
        return self._become(node, presence, "live", now)

    def closed(self, node: str, now: float) -> list[Notice]:
        """The connection of this node ended: the kernel closed it."""
        presence = self.presences.get(node)
        return [] if presence is None else self._become(node, presence, "closed", now)

    def grow_silent(self, now: float, silence_seconds: float) -> list[Notice]:
        """Nodes that stand connected and have not been heard for so long."""
        notices: list[Notice] = []
        for node, presence in self.presences.items():
            if presence.state == "live" and now - presence.heard >= silence_seconds:
                notices += self._become(node, presence, "silent", now)
        return notices

    def forget(self, now: float, keep_seconds: float) -> list[Notice]:
        """Drop nodes whose connection ended so long ago, with their records."""
        old = [
            node
            for node, presence in self.presences.items()
            if presence.state == "closed" and now - presence.since >= keep_seconds
        ]
        notices: list[Notice] = []
        for node in old:
            del self.presences[node]
            notices += self.delete(NODE_PREFIX + node)
        return notices

    def snapshot(self, now: float) -> dict[str, object]:
        """Everything, for a node that connects."""
        return {
            "entries": {key: [version, value] for key, (version, value) in self.entries.items()},
            "presences": {node: [p.state, round(now - p.since, 3)] for node, p in self.presences.items()},
        }

    def _become(
        self, node: str, presence: Presence, state: Literal["live", "silent", "closed"], now: float
    ) -> list[Notice]:
        if presence.state == state:
            return []
        presence.state, presence.since = state, now
        return [{"event": "presence", "node": node, "presence": state}]


def key_of(request: Mapping[str, object]) -> str:
    """Which key it is about."""
    name = request.get("key")
    if isinstance(name, str) and 0 < len(name) <= MAX_KEY:
        return name
    message = f"a key is a string of 1 to {MAX_KEY} characters"
    raise RefusedError(message)


def value_of(request: Mapping[str, object]) -> object:
    """What to set."""
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
