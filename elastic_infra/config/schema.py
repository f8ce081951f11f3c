"""The JSON Schema of `job.yaml`, shorthands included, for editors and CI.

The schema accepts more than `JobConfig`, because it lacks the rules between fields.
"""

from __future__ import annotations

from typing import Any, Final

from elastic_infra.config.job import JobConfig

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_KEYWORDS: Final = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""JSON Schema's keywords for limits that pydantic leaves under its own names where a field has an earlier validator."""


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12; every field has its docstring as description."""
    tidy = _tidy(JobConfig.model_json_schema())
    return {"$schema": DRAFT, "title": "elastic-infra job", **tidy}


def _tidy(schema: Any, *, names: bool = False) -> Any:  # noqa: ANN401 - JSON
    """The schema without the titles that only repeat names.

    Args:
        names: the keys are names of fields, not words of the schema.
    """
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key if names else _KEYWORDS.get(key, key): value
        if key in _VERBATIM and not names
        else _tidy(value, names=key in {"properties", "$defs"} and not names)
        for key, value in schema.items()
        if names or key != "title"
    }


_VERBATIM: Final = frozenset({"default", "enum", "const", "examples"})
