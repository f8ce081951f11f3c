"""Writes `docs/reference.md`: every field of `job.yaml`, from the models' own schema. `make golden` runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from elastic_infra.config.schema import json_schema
from elastic_infra.config.values import MAX_INT32

TARGET: Final = Path(__file__).resolve().parent.parent / "docs/reference.md"

_HEADER: Final = """\
# Reference of `job.yaml`

Every field, its type, its default and what it means: written from the models by `make golden`, not to be edited.
The same fields are the component's arguments in Python and in Pulumi's other languages; there, the short forms (a
number for a text, `true` for a mapping) are written out. `elastic-infra schema` prints the same as JSON Schema.
"""

Schema = Mapping[str, Any]


def source() -> str:
    """The text of docs/reference.md."""
    schema = json_schema()
    sections = [_section(path, part, schema["$defs"]) for path, part in parts("", schema, schema["$defs"])]
    return "\n".join([_HEADER, *sections])


def parts(path: str, part: Schema, models: Schema) -> Iterator[tuple[str, Schema]]:
    """Every mapping with its path, outer ones first."""
    yield path, part
    for name, field in part["properties"].items():
        held, suffix = inner(field)
        if held in models and "properties" in models[held]:
            yield from parts(f"{path}.{name}{suffix}".lstrip("."), models[held], models)


def inner(field: Schema) -> tuple[str, str]:
    """Name of the part that a field holds, and what the path gets for a list or a mapping of them."""
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2], ""
    for option in field.get("anyOf", ()):
        if (found := inner(option))[0]:
            return found
    for key, suffix in (("items", "[]"), ("additionalProperties", ".NAME")):
        if isinstance(field.get(key), dict) and (found := inner(field[key]))[0]:
            return found[0], suffix + found[1]
    return "", ""


def _section(path: str, part: Schema, parts: Schema) -> str:
    required = part.get("required", ())
    rows = "\n".join(_row(name, field, name in required, parts) for name, field in part["properties"].items())
    title = f"## `{path}`" if path else "## The job"
    purpose = str(part.get("description", "")).split("\n\n")[0]
    return f"{title}\n\n{_line(purpose)}\n\n| field | type | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _row(name: str, field: Schema, required: bool, parts: Schema) -> str:  # noqa: FBT001 - of a table
    default = "**required**" if required else _default(field, parts)
    return f"| `{name}` | {_type(field, parts)} | {default} | {_line(field['description'])} |"


def _default(field: Schema, parts: Schema) -> str:
    held, _ = inner(field)
    value = field.get("default")
    if value is None:
        return ""
    if held in parts and isinstance(value, dict):
        return "below"
    return f"`{json.dumps(value)}`"


def _type(field: Schema, parts: Schema) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "$ref" in field:
        name = inner(field)[0]
        return "mapping" if "properties" in parts[name] else "anything"
    if "anyOf" in field:
        kinds = (_type(option, parts) for option in field["anyOf"] if option.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    return _plain(field, parts)


def _plain(field: Schema, parts: Schema) -> str:
    kinds = field.get("type", "anything")
    if kinds == "array":
        return f"list of {_type(field['items'], parts)}"
    if kinds == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"mapping to {_type(field['additionalProperties'], parts)}"
    words = " or ".join(_WORDS.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    return words + _limits(field)


_WORDS: Final = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "mapping"}


def _limits(field: Schema) -> str:
    low, above, high = field.get("minimum"), field.get("exclusiveMinimum"), field.get("maximum")
    start = f" from {low}" if low is not None else f" above {above}" if above is not None else ""
    return start if high in {None, MAX_INT32} else f"{start} to {high}"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(source(), "utf-8")
