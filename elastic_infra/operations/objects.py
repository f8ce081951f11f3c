"""Reads Kubernetes' objects as a cluster returns them: every field may be missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from elastic_infra.manifests.figures import at, items

Object = Mapping[str, Any]
"""One object as the API server writes it."""


class RefusedError(Exception):
    """What was asked for cannot be done to this job; the message says why and what to do."""


def name_of(thing: Object) -> str:
    """The name in an object's metadata."""
    return text(thing, "metadata.name")


def text(thing: Object, path: str) -> str:
    """The text at a dotted path, in one line without control characters; empty where there is none."""
    return one_line(at(thing, path))


def part(thing: Object, path: str) -> Object:
    """The mapping at a dotted path; empty where there is none."""
    found = at(thing, path)
    return found if isinstance(found, Mapping) else {}


def one_line(value: object) -> str:
    """Text from a cluster, fit for one line of a terminal: it may hold line ends and escape sequences."""
    if value is None:
        return ""
    return " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())


def whole(thing: Object, path: str) -> int | None:
    """The whole number at a dotted path."""
    value = at(thing, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def moment(value: object) -> float | None:
    """A time of the API server in whole Unix seconds; None where it is not set yet."""
    if not isinstance(value, str):
        return None
    try:  # Python 3.10 reads neither nanoseconds nor Z
        return datetime.fromisoformat(re.sub(r"\.\d+", "", value).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def conditions(thing: Object) -> Iterator[Object]:
    """The conditions that hold now."""
    return (each for each in items(at(thing, "status.conditions")) if each.get("status") == "True")
