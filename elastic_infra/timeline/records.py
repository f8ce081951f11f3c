"""One event line as a record. The module knows the head that all lines have, and no event by name.

The format is that of ``launcher/event_log.py``; fields of new or changed events are ignored.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

HEAD = ("time", "monotonic", "event", "node", "generation", "attempt")


class NoEventError(ValueError):
    """The text is no event line; the message says what is missing."""


@dataclass(frozen=True)
class Record:
    """A line of an event file, placed on the one clock."""

    at: float
    """Unix seconds, on one clock for all records (see ``clocks``)."""
    event: str
    node: str
    """The node that the event is about; empty for an event of the whole job."""
    generation: int
    attempt: int
    fields: Mapping[str, object]
    """The event's own fields."""

    def text(self, name: str) -> str:
        """A field as text; empty where the field is missing."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """A field as a number; None where it is no number."""
        return _finite(self.fields.get(name))

    def whole(self, name: str) -> int | None:
        """A field as a whole number; None where it is no whole number."""
        value = self.number(name)
        return None if value is None else int(value)


@dataclass(frozen=True)
class Line:
    """A record before its two clocks are reduced to the common one."""

    wall: float
    """Unix seconds by the machine's own clock."""
    monotonic: float | None
    record: Record

    def placed(self, at: float) -> Record:
        """The record at this moment of the common clock."""
        head = self.record
        return Record(at, head.event, head.node, head.generation, head.attempt, head.fields)


def parse(text: str) -> Line:
    """Read one line.

    Raises:
        NoEventError: the line is no event.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = "it is not JSON"
        raise NoEventError(message) from error
    if not isinstance(given, dict) or not isinstance(given.get("event"), str):
        message = 'it is no object with an "event"'
        raise NoEventError(message)
    fields = {name: value for name, value in given.items() if name not in HEAD}
    node = given.get("node")
    head = (given["event"], node if isinstance(node, str) else "")
    wall = _unix(given.get("time"))
    record = Record(wall, *head, _count(given.get("generation")), _count(given.get("attempt")), fields)
    return Line(wall, _finite(given.get("monotonic")), record)


def _unix(text: object) -> float:
    try:
        moment = dt.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return moment.replace(tzinfo=moment.tzinfo or dt.timezone.utc).timestamp()
    except (ValueError, OverflowError) as error:
        message = 'its "time" is no UTC time such as 2026-01-31T12:00:00.000Z'
        raise NoEventError(message) from error


def _finite(value: object) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON's integers have no bound
        return None
    return number if math.isfinite(number) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
