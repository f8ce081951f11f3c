"""The words that a field takes as enums of the package's schema: Pulumi's analyzer of Python components knows no words.

The form is https://www.pulumi.com/docs/iac/using-pulumi/extending-pulumi/schema/#enumvalue; an enum's values cross the
wire as the strings that they are.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic


def with_enums(schema: Mapping[str, Any], root: type[pydantic.BaseModel], component: str) -> dict[str, Any]:
    """The schema with an enum, named after model and field, for each field that takes certain words only.

    Args:
        schema: as Pulumi infers it, with text for these fields.
        root: the model of the component's inputs.
        component: the component's name in the schema.
    """
    package = schema["name"]
    resource = schema["resources"][f"{package}:index:{component}"]
    found = {**schema, "resources": dict(schema["resources"]), "types": dict(schema["types"])}
    enums: dict[str, Any] = {}
    for model in dict.fromkeys(reached(root)):
        token = f"{package}:index:{model.__name__}"
        before = resource["inputProperties"] if model is root else schema["types"][token]["properties"]
        properties, made = _referred(before, model, "Job" if model is root else model.__name__, package)
        enums |= made
        if model is root:
            found["resources"][f"{package}:index:{component}"] = {**resource, "inputProperties": properties}
        else:
            found["types"][token] = {**schema["types"][token], "properties": properties}
    return {**found, "types": found["types"] | enums}


def reached(model: type[pydantic.BaseModel]) -> Iterator[type[pydantic.BaseModel]]:
    """The models that this one is made of, those that others need first; some more than once."""
    for field in model.model_fields.values():
        for part in _parts(field.annotation):
            yield from reached(part)
    yield model


def _parts(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:  # noqa: ANN401 - a type expression
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts(argument)


def _referred(
    properties: Mapping[str, Any], model: type[pydantic.BaseModel], prefix: str, package: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model's properties, those with words as references, and the enums that are referred to."""
    changed, enums = dict(properties), {}
    for name, field in model.model_fields.items():
        if values := words(field.annotation):
            key, token = _camel(name), f"{package}:index:{prefix}{_pascal(name)}"
            rest = {part: value for part, value in properties[key].items() if part != "type"}
            changed[key] = {**rest, "$ref": f"#/types/{token}"}
            enums[token] = {
                "type": "string",
                "description": properties[key]["description"],
                "enum": [{"name": _member(value), "value": value} for value in values],
            }
    return changed, enums


def words(annotation: Any) -> tuple[str, ...]:  # noqa: ANN401 - a type expression
    """The words that a field of this annotation takes; none where it takes any text, or something else."""
    origin = get_origin(annotation)
    if origin is Literal:
        return get_args(annotation)
    if origin in {Annotated, Union, types.UnionType}:
        return tuple(word for argument in get_args(annotation) for word in words(argument))
    return ()


def _member(word: str) -> str:
    """The name of an enum's value, which begins with a letter in every language."""
    name = _pascal(word)
    return name if name[0].isalpha() else f"Of{name}"


def _pascal(text: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^a-zA-Z0-9]+", text))


def _camel(name: str) -> str:
    """A field's name in the schema, as Pulumi makes it."""
    first, *others = name.split("_")
    return first + "".join(map(_pascal, others))
