"""The base of all parts of the config: refused unknown keys, frozen values, hidden inputs, shorthands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from elastic_infra.config.docs import field_docs


class Part(BaseModel):
    """A part of the config. Field docstrings feed the JSON schema and the reference, so that they cannot differ."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
        ser_json_inf_nan="strings",
        allow_inf_nan=False,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        properties = handler.resolve_ref_schema(reference).get("properties", {})
        for name, doc in field_docs(cls).items():
            properties[name]["description"] = doc
        return reference


class Shorthand:
    """Accepts a shorter form and turns it into the canonical one, so that errors keep a plain path.

    Args:
        expand: returns the canonical form of a short value, and any other value unchanged.
        schema: JSON schema of the short form.
    """

    def __init__(self, expand: Callable[[object], object], schema: Mapping[str, Any]) -> None:
        self._expand = expand
        self._schema = dict(schema)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [self._schema, handler(schema)]}


def _exactly_one(part: BaseModel, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(part, name) is not None]


def require_one_of(part: BaseModel, *names: str) -> None:
    """Raise unless exactly one of the named fields is given.

    Raises:
        ValueError: none or several are given.
    """
    given = _exactly_one(part, names)
    if len(given) != 1:
        found = f"{len(given)} are given" if given else "none is given"
        message = f"needs exactly one of {', '.join(names)}; {found}."
        raise ValueError(message)
