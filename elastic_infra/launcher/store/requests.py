"""The fields of a request, checked: each raises ``RefusedError`` where it is not what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .space import RefusedError

MAX_KEY: Final = 256
"""Characters of a key."""


def key(request: Mapping[str, object]) -> str:
    """Which key it is about."""
    name = request.get("key")
    if isinstance(name, str) and 0 < len(name) <= MAX_KEY:
        return name
    message = f"a key is a string of 1 to {MAX_KEY} characters"
    raise RefusedError(message)


def value(request: Mapping[str, object]) -> object:
    """What to set."""
    given = request.get("value")
    if given is not None:
        return given
    message = "a value is missing"
    raise RefusedError(message)


def version(request: Mapping[str, object]) -> int:
    """The version that a compare-and-set expects."""
    number = request.get("version")
    if isinstance(number, int):
        return number
    message = "a version is a number"
    raise RefusedError(message)
