"""Frozen dataclasses as JSON objects and back: the form of all messages between the launcher's processes.

A field with its default value is left out, an unknown field is ignored, and each field must be of its annotated type:
the other end may be another version of the launcher, or no launcher at all.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

Record = TypeVar("Record")


def to_json(record: object) -> dict[str, object]:
    """The JSON object of a dataclass; tuples become arrays, nested dataclasses become objects."""
    fields = dataclasses.fields(record)  # type: ignore[arg-type]  # any dataclass; there is no type for that in 3.10
    given = ((field, getattr(record, field.name)) for field in fields)
    return {
        field.name: _plain(value)
        for field, value in given
        if field.default is dataclasses.MISSING or value != field.default
    }


def from_json(kind: type[Record], value: object) -> Record:
    """The dataclass ``kind`` from the JSON object that ``to_json`` made of it.

    Raises:
        TypeError: the value is no object, or a field is missing or not of its type.
    """
    if not isinstance(value, Mapping):
        message = f"{kind.__name__} must be an object."
        raise TypeError(message)
    wanted = _types_of(kind)  # type: ignore[arg-type]  # every class is hashable
    return kind(**{
        name: _read(wanted[name], value[name], f"{kind.__name__}.{name}") for name in wanted if name in value
    })  # fmt: skip


def changed(record: Record, changes: object, dropped: object, spliced: object) -> Record:
    """The dataclass after a change of its JSON object; an unknown field is ignored.

    Args:
        record: before the change.
        changes: fields with their new values.
        dropped: names of fields that the object does not have any more.
        spliced: fields that hold arrays, each with the place of its change, the number of values that are removed
            there, and the values that come in.

    Raises:
        TypeError: an argument is not of this form, or a field is not of its type.
    """
    kind = type(record).__name__
    wanted = _types_of(type(record))  # type: ignore[arg-type]  # every class is hashable
    read = {
        name: _read(wanted[name], value, f"{kind}.{name}")
        for name, value in _checked(dict, changes, kind).items()
        if name in wanted
    }
    for name, (at, removed, values) in _checked(dict, spliced, kind).items():
        if name in wanted:
            before = getattr(record, name)
            read[name] = (*before[:at], *_read(wanted[name], values, f"{kind}.{name}"), *before[at + removed :])
    defaults = {field.name: field.default for field in dataclasses.fields(record)}  # type: ignore[arg-type]  # as above
    read |= {name: defaults[name] for name in _checked(list, dropped, kind) if name in wanted}
    if dataclasses.MISSING in read.values():
        message = f"{kind} lacks a field."
        raise TypeError(message)
    return dataclasses.replace(record, **read)  # type: ignore[type-var]  # as above


@functools.cache
def _types_of(kind: type) -> dict[str, Any]:
    """Each field with its type, resolved from the text of its annotation."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return to_json(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _read(wanted: Any, value: object, name: str) -> Any:  # noqa: ANN401  a type, and a value of it
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in {types.UnionType, typing.Union}:
        (inner,) = (each for each in arguments if each is not types.NoneType)  # the only unions are optional values
        return None if value is None else _read(inner, value, name)
    if dataclasses.is_dataclass(wanted):
        return from_json(typing.cast("type", wanted), value)
    if origin is tuple:
        return tuple(_read(arguments[0], item, name) for item in _checked(list, value, name))
    if origin is dict:
        items = _checked(dict, value, name).items()
        return {key: _read(arguments[1], item, name) for key, item in items}
    return _checked(type(arguments[0]) if origin is Literal else wanted, value, name)


def _checked(kind: type, value: object, name: str) -> Any:  # noqa: ANN401  it is of the type asked for
    """The value, if it has the type; JSON writes a float without a fraction as an int, and true is no number."""
    allowed = (int, float) if kind is float else kind
    if isinstance(value, allowed) and (kind in {bool, object} or not isinstance(value, bool)):
        return value
    message = f"{name} must be {kind.__name__}."
    raise TypeError(message)
