"""The error for a config: every fault as ``path: reason``, with what to do.

Messages quote paths, limits and allowed words, but no value, because any value may be a secret.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import pydantic
import pydantic_core

from elastic_infra.config.values import is_late


@dataclasses.dataclass(frozen=True, order=True)
class Fault:
    """One thing to fix (or, in a warning, to know).

    Attributes:
        path: the place, such as ``elastic.nnodes`` or ``storage.volumes[0].name``; empty for the whole document.
        reason: what is wrong, why, and what to do.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class ConfigError(ValueError):
    """A config that cannot become manifests.

    Attributes:
        faults: every fault found, in the order of the config's fields.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


class RuleBroken(ValueError):  # noqa: N818 - raised inside pydantic only, and unpacked by faults_of()
    """Carries the faults of cross-field rules through pydantic."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(map(str, self.faults)))


def faults_of(error: pydantic.ValidationError, model: type[pydantic.BaseModel]) -> tuple[Fault, ...]:
    """Every fault in pydantic's error, without input values, and with the nearest known name for an unknown key."""
    return tuple(fault for details in error.errors(include_url=False) for fault in _faults(details, model))


def _faults(details: pydantic_core.ErrorDetails, model: type[pydantic.BaseModel]) -> Iterator[Fault]:
    path, cause = path_of(details["loc"]), details.get("ctx", {}).get("error")
    if isinstance(cause, RuleBroken | ConfigError):
        yield from (Fault(_join(path, fault.path), fault.reason) for fault in cause.faults)
    elif isinstance(cause, ValueError):
        yield Fault(path, str(cause))
    elif is_late(details["input"]):
        yield Fault(path, "must be known when the program runs; a pulumi.Output is accepted for single strings only.")
    elif details["type"] == "extra_forbidden":
        yield Fault(path, _unknown_key(details["loc"], model))
    elif details["type"] == "missing":
        yield Fault(path, "is required and missing.")
    else:
        yield Fault(path, _PLAIN.get(details["type"], details["msg"]) + ".")


_PLAIN: Final[Mapping[str, str]] = {
    "model_type": "must be a mapping of names to values",
    "model_attributes_type": "must be a mapping of names to values",
    "dict_type": "must be a mapping of names to values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be a string; quote it if it is meant as text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}


def path_of(loc: Sequence[int | str]) -> str:
    """``("storage", "volumes", 0, "name")`` is ``storage.volumes[0].name``."""
    path = ""
    for part in loc:
        if part != "[key]":
            path = f"{path}[{part}]" if isinstance(part, int) else _join(path, part)
    return path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _unknown_key(loc: Sequence[int | str], model: type[pydantic.BaseModel]) -> str:
    known = _fields_at(loc[:-1], model)
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    if near:
        return f"is not a known key. Did you mean {near[0]!r}?"
    return f"is not a known key. Known here: {', '.join(known)}." if known else "is not a known key."


def _fields_at(loc: Sequence[int | str], model: type[pydantic.BaseModel]) -> list[str]:
    current: Any = model
    for part in loc:
        fields = getattr(current, "model_fields", None)
        if fields is None or part not in fields:
            continue  # an index or a mapping's key, whose inner type is reached already
        current = _model_in(fields[part].annotation)
    return list(getattr(current, "model_fields", {}))


def _model_in(annotation: Any) -> Any:  # noqa: ANN401 - a type expression
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _model_in(arg))), None)
