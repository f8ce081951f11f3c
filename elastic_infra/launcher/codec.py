"""Frozen dataclasses as JSON objects and back: the form of all messages between the launcher's processes.

A field with its default value is left out, an unknown field is ignored, and each field must be of its annotated type:
the other end may be another version of the launcher, or no launcher at all.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

Record = TypeVar("Record")
_Reader = Callable[[object], Any]
"""Makes a field's value out of JSON; raises ``TypeError`` where it is not of the field's type."""


def to_json(record: object) -> dict[str, object]:
    """The JSON object of a dataclass; tuples become arrays, nested dataclasses become objects."""
    defaults = _defaults_of(type(record))  # type: ignore[arg-type]  # every class is hashable
    given = ((name, default, getattr(record, name)) for name, default in defaults.items())
    return {name: _plain(value) for name, default, value in given if value != default}


def from_json(kind: type[Record], value: object) -> Record:
    """The dataclass ``kind`` from the JSON object that ``to_json`` made of it.

    Raises:
        TypeError: the value is no object, or a field is missing or not of its type.
    """
    if not isinstance(value, Mapping):
        message = f"{kind.__name__} must be an object."
        raise TypeError(message)
    readers = _readers_of(kind)  # type: ignore[arg-type]  # every class is hashable
    return kind(**{name: read(value[name]) for name, read in readers.items() if name in value})


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
    readers = _readers_of(type(record))  # type: ignore[arg-type]  # every class is hashable
    read = {name: readers[name](value) for name, value in _checked(dict, kind, changes).items() if name in readers}
    for name, (at, removed, values) in _checked(dict, kind, spliced).items():
        if name in readers:
            before = getattr(record, name)
            read[name] = (*before[:at], *readers[name](values), *before[at + removed :])
    defaults = _defaults_of(type(record))  # type: ignore[arg-type]  # as above
    read |= {name: defaults[name] for name in _checked(list, kind, dropped) if name in readers}
    if dataclasses.MISSING in read.values():
        message = f"{kind} lacks a field."
        raise TypeError(message)
    return dataclasses.replace(record, **read)  # type: ignore[type-var]  # as above


@functools.cache
def _readers_of(kind: type) -> dict[str, _Reader]:
    """What reads each field, made once from the text of the annotations: a generation has thousands of members."""
    hints = typing.get_type_hints(kind)
    fields = (field.name for field in dataclasses.fields(kind))
    return {name: _reader(hints[name], f"{kind.__name__}.{name}") for name in fields}


@functools.cache
def _defaults_of(kind: type) -> dict[str, object]:
    """Each field with its default, ``MISSING`` where it has none."""
    return {field.name: field.default for field in dataclasses.fields(kind)}


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return to_json(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _reader(wanted: Any, name: str) -> _Reader:  # noqa: ANN401  a type
    """What makes a value of this type out of JSON; ``name`` is the field's, for errors."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in {types.UnionType, typing.Union}:
        (inner,) = (each for each in arguments if each is not types.NoneType)  # the only unions are optional values
        read_inner = _reader(inner, name)
        return lambda value: None if value is None else read_inner(value)
    if dataclasses.is_dataclass(wanted):
        return functools.partial(from_json, typing.cast("type", wanted))
    if origin is tuple:
        read_item = _reader(arguments[0], name)
        return lambda value: tuple(map(read_item, _checked(list, name, value)))
    if origin is dict:
        read_value = _reader(arguments[1], name)
        return lambda value: {key: read_value(item) for key, item in _checked(dict, name, value).items()}
    return functools.partial(_checked, type(arguments[0]) if origin is Literal else wanted, name)


def _checked(kind: type, name: str, value: object) -> Any:  # noqa: ANN401  it is of the type asked for
    """The value, if it has the type; JSON writes a float without a fraction as an int, and true is no number."""
    allowed = (int, float) if kind is float else kind
    if isinstance(value, allowed) and (kind in {bool, object} or not isinstance(value, bool)):
        return value
    message = f"{name} must be {kind.__name__}."
    raise TypeError(message)
