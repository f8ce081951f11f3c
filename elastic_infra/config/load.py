"""Reads `job.yaml` or JSON into a `JobConfig`. Only this module and `workdir_files` read files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from elastic_infra.config.errors import ConfigError, Fault
from elastic_infra.config.job import JobConfig
from elastic_infra.config.workdir_files import with_workdir
from elastic_infra.config.yaml_text import read_yaml

MAX_FILE_BYTES: Final = 1024 * 1024
"""The largest job file: a job is a page or two, so a larger file is no job file."""

JOB_KEYS: Final = "image: and script:"
"""Keys with which most job files start."""

JOB_STEM: Final = "job"
"""Stem of a file that is named after its folder."""


def load(path: Path) -> JobConfig:
    """The config in a `.yaml`, `.yml` or `.json` file, with the files of its `workdir`.

    Raises:
        ConfigError: the file cannot be read or parsed (with line and column), or its content is invalid.
    """
    return with_workdir(JobConfig.from_mapping(read_mapping(path)), path.parent)


def read_mapping(path: Path, what: str = "job file", keys: str = JOB_KEYS) -> Mapping[str, Any]:
    """The unvalidated content of a file.

    Args:
        path: the file.
        what: the kind of file, for messages.
        keys: keys with which such a file starts, for the message about one that has none.

    Raises:
        ConfigError: the file cannot be read or parsed (with line and column), or is not a mapping.
    """
    return parse_mapping(read_text(path, what), what, keys)


def job_name(path: str, root: str) -> str:
    """The job that a file declares: its stem, or for `job.yaml` its folder.

    Args:
        path: the file's path, with `/`.
        root: name for a `job.yaml` that lies in no folder.
    """
    pure = PurePosixPath(path)
    if pure.stem == JOB_STEM:
        return pure.parent.name or root
    return pure.stem.removesuffix(f".{JOB_STEM}")


def named_by(path: str) -> str:
    """The source of a job's name where its file has no `name`, for a message about that name."""
    source = "folder" if PurePosixPath(path).stem == JOB_STEM else "file"
    return f"The name is the {source}'s, for the job has no `name`: set one."


def parse(text: str) -> JobConfig:
    """The config in a YAML or JSON text (JSON is YAML).

    Raises:
        ConfigError: the text cannot be parsed (with line and column), or its content is invalid.
    """
    return JobConfig.from_mapping(parse_mapping(text))


def parse_mapping(text: str, what: str = "job file", keys: str = JOB_KEYS) -> Mapping[str, Any]:
    """The unvalidated content of a YAML or JSON text; arguments as `read_mapping`.

    Raises:
        ConfigError: the text cannot be parsed (with line and column), or is not a mapping.
    """
    data = _read_json(text) if text.startswith("{") else read_yaml(text)
    if not isinstance(data, Mapping):
        found = "is empty" if data is None else "is not a mapping of names to values"
        raise ConfigError([Fault("", f"{found}. A {what} starts with keys such as {keys}.")])
    return data


def _read_json(text: str) -> object:
    """The text read as JSON, since YAML 1.1 lacks surrogate pairs; other text is read, or refused, as YAML."""
    try:
        data = json.loads(text, object_pairs_hook=_without_repeats)
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return read_yaml(text)
    return data


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        message = "a key is given twice"
        raise ValueError(message)
    return dict(pairs)


def read_text(path: Path, what: str) -> str:
    """A file that a user names, of at most `MAX_FILE_BYTES` bytes of UTF-8.

    Args:
        path: the file.
        what: the kind of file, for the message about one that is too large.

    Raises:
        ConfigError: the file cannot be read, is too large, or is not UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, what)
    except OSError as error:
        raise ConfigError([Fault("", f"cannot be read: {error.strerror or error}.")]) from None


def read_stream(file: BinaryIO, what: str) -> str:
    """The text of an open file, such as standard input; arguments and errors as `read_text`."""
    content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError([Fault("", f"is larger than {MAX_FILE_BYTES} bytes, so it is no {what}.")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError([Fault("", f"is not UTF-8 text (byte {error.start}).")]) from None
