"""Which files declare a job, what the job is called, and its config. Pure: bytes in, a config or its faults out."""

from __future__ import annotations

import codecs
import contextlib
import json
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

from elastic_infra.config import ConfigError, Fault, JobConfig
from elastic_infra.config.load import JOB_STEM, MAX_FILE_BYTES, parse
from elastic_infra.config.yaml_text import read_yaml

SUFFIXES: Final = (".yaml", ".yml", ".json")

_IMAGE: Final = re.compile(rb"""(?m)^["']?image["']?\s*:""")
_ENTRYPOINTS: Final = ("script", "module", "command")
_ENTRYPOINT: Final = re.compile(rb"""(?m)^["']?(script|module|command)["']?\s*:""")
_CONFLICT: Final = re.compile(r"(?m)^(<{7}|>{7}|\|{7})( |$)")


def may_declare(path: str) -> bool:
    """Whether a file of this name may declare a job: YAML or JSON, without a hidden file or folder in its path."""
    pure = PurePosixPath(path)
    return pure.suffix in SUFFIXES and not any(part.startswith(".") or part in _FOREIGN for part in pure.parts)


_FOREIGN: Final = frozenset({"node_modules", "site-packages", "venv", "__pycache__"})


def declares(path: str, content: bytes) -> bool:
    """Whether a file declares a job: by its name (`job.yaml`, `llm.job.yaml`), or by its keys.

    The keys are looked for in the text, so that a job whose YAML is broken is still known as one.
    """
    stem = PurePosixPath(path).stem
    if stem == JOB_STEM or stem.endswith(f".{JOB_STEM}"):
        return True
    head = content[:MAX_FILE_BYTES].removeprefix(codecs.BOM_UTF8)
    if head.lstrip().startswith(b"{"):
        return _is_job_in_braces(head)
    return bool(_IMAGE.search(head) and _ENTRYPOINT.search(head))


def _is_job_in_braces(content: bytes) -> bool:
    """Whether a mapping in braces, which is JSON or else YAML, has the keys of a job."""
    readers: tuple[Callable[[bytes], object], ...] = (json.loads, lambda text: read_yaml(text.decode()))
    for read in readers:
        with contextlib.suppress(ValueError, RecursionError):
            data = read(content)
            return isinstance(data, dict) and "image" in data and not data.keys().isdisjoint(_ENTRYPOINTS)
    return False


def config_of(content: bytes) -> JobConfig:
    """The config in a file.

    Raises:
        ConfigError: binary, not UTF-8, in the middle of a merge, not YAML, or not a valid config.
    """
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError([Fault("", f"is larger than {MAX_FILE_BYTES} bytes, so it is no job file.")])
    if b"\0" in content:
        raise ConfigError([Fault("", "is a binary file, not YAML or JSON.")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError([Fault("", f"is not UTF-8 text (byte {error.start}).")]) from None
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise ConfigError([Fault("", f"holds a merge conflict marker at line {line}. Resolve the merge first.")])
    return parse(text)
