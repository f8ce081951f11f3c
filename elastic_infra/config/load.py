"""Reads `job.yaml` or JSON into a `JobConfig`. The only module of the config that touches files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from elastic_infra.config.errors import ConfigError, Fault
from elastic_infra.config.job import JobConfig

MAX_FILE_BYTES = 1024 * 1024
"""A job file is a page or two; a larger one is something else."""


def load(path: Path) -> JobConfig:
    """The config in a `.yaml`, `.yml` or `.json` file.

    Raises:
        ConfigError: the file cannot be read or parsed (with line and column), or its content is invalid.
    """
    return parse(_read(path))


def parse(text: str) -> JobConfig:
    """The config in a YAML or JSON text (JSON is YAML).

    Raises:
        ConfigError: the text cannot be parsed (with line and column), or its content is invalid.
    """
    return JobConfig.from_mapping(parse_mapping(text))


def parse_mapping(text: str) -> Mapping[str, Any]:
    """The unvalidated content of a YAML or JSON text.

    Raises:
        ConfigError: it cannot be parsed, or is not a mapping.
    """
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_parse_fault(error)]) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        # PyYAML lets a ValueError out of impossible dates and numbers, and recurses into nested text.
        fault = Fault("", "is not valid YAML: it holds a character, number, date or nesting that YAML refuses.")
        raise ConfigError([fault]) from None
    if not isinstance(data, Mapping):
        found = "is empty" if data is None else "is not a mapping of names to values"
        raise ConfigError([Fault("", f"{found}. A job file starts with keys such as image: and script:.")])
    return data


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError([Fault("", f"is larger than {MAX_FILE_BYTES} bytes, so it is no job file.")])
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError([Fault("", f"is not UTF-8 text (byte {error.start}).")]) from None
    except OSError as error:
        raise ConfigError([Fault("", f"cannot be read: {error.strerror or error}.")]) from None


def _parse_fault(error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "unknown place"
    # PyYAML quotes single characters and tags of the text, never a value.
    return Fault("", f"is not valid YAML at {where}: {error.problem or error.context}.")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
    """SafeLoader that refuses duplicate and non-string keys instead of dropping or mangling them."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    seen: set[str] = set()
    for key, _ in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        if name is None or key.tag in {"tag:yaml.org,2002:null", "tag:yaml.org,2002:binary"}:
            raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key.start_mark)
        if name in seen:
            raise yaml.constructor.ConstructorError(None, None, "a key is given twice", key.start_mark)
        seen.add(name)
    return {key.value: loader.construct_object(value, deep=True) for key, value in node.value}


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
