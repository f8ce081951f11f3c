"""What Grafana's own types have against a dashboard: the published types of one release, not a running Grafana."""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest


def findings(dashboard: Mapping[str, Any]) -> list[str]:
    """The keys that Grafana does not know, and the values that are not of its type."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="the types want Python 3.11")
    from grafana_foundation_sdk.cog import encoder, plugins

    plugins.register_default_plugins()  # panels and queries have types of their own
    read = models.Dashboard.from_json(dashboard)
    return [*_lost(dashboard, json.loads(json.dumps(read, cls=encoder.JSONEncoder)), "dashboard"), *_odd(read)]


def _lost(given: Any, kept: Any, path: str) -> Iterator[str]:
    """What is not there any more once the types have read it."""
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        yield from (f"{path}.{key} is unknown" for key in given.keys() - kept.keys())
        for key in given.keys() & kept.keys():
            yield from _lost(given[key], kept[key], f"{path}.{key}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, pair in enumerate(zip(given, kept, strict=True)):
            yield from _lost(*pair, f"{path}[{index}]")
    elif given != kept:
        yield f"{path} is {given!r}, read as {kept!r}"


def _odd(read: Any) -> Iterator[str]:
    """What is of another type than its annotation, in an object and below it."""
    if isinstance(read, list):
        for each in read:
            yield from _odd(each)
    elif hasattr(read, "to_json"):
        for name, hint in typing.get_type_hints(type(read)).items():
            value = getattr(read, name)
            yield from [] if _fits(value, hint) else [f"{type(read).__name__}.{name} is {value!r}, no {hint}"]
            yield from _odd(value)


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return any(_fits(value, each) for each in arguments)
    if origin in {list, dict}:
        members = value.values() if isinstance(value, dict) else value
        return isinstance(value, origin) and all(_fits(each, arguments[-1]) for each in members)
    if origin is typing.Literal or isinstance(hint, enum.EnumMeta):
        return value in (arguments or [each.value for each in hint])
    if isinstance(value, bool):  # which Python counts among the numbers
        return hint in {bool, Any, object}
    return hint is Any or isinstance(value, (float, int) if hint is float else hint)
