"""A job's file for another workload object: what has to go, and what stays as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elastic_infra.config.errors import ConfigError, Fault
from elastic_infra.config.job import JobConfig
from elastic_infra.config.load import parse_mapping
from elastic_infra.config.yaml_edit import Path, edited, without

_MEANING: Final = frozenset({"image", "script", "module", "command", "args", "elastic.nnodes", "resources", "target"})
"""Keys without which a job would be another job: a target that refuses one of them cannot run the job."""


@dataclasses.dataclass(frozen=True)
class Migration:
    """A job file for another `target`."""

    text: str
    """The file's new content."""
    config: JobConfig
    """What the new content says."""
    removed: tuple[Fault, ...]
    """Keys that the target refuses, each with the reason; their defaults hold."""


def migrated(text: str, target: str) -> Migration:
    """The file with another `target`, without the keys that this target refuses.

    Args:
        text: a job file.
        target: a value of `target`.

    Raises:
        ConfigError: the job is not valid as it is, or the target cannot run it.
    """
    before = parse_mapping(text)
    JobConfig.from_mapping(before)
    refused: dict[Path, Fault] = {}
    while faults := _faults(after := _pruned(before, tuple(refused)) | {"target": target}):
        new = {path: fault for path, fault in _keys(after, faults) if path not in refused}
        if not new:
            raise ConfigError(faults)
        refused |= new
    removed = _widest(before, tuple(refused))
    found = edited(text, "target", target, removed)
    return Migration(found, JobConfig.from_mapping(parse_mapping(found)), tuple(refused.values()))


def _faults(data: Mapping[str, Any]) -> tuple[Fault, ...]:
    try:
        JobConfig.from_mapping(data)
    except ConfigError as error:
        return error.faults
    return ()


def _keys(data: Mapping[str, Any], faults: tuple[Fault, ...]) -> Iterator[tuple[Path, Fault]]:
    """The keys of the file that faults are about, save those that make the job what it is."""
    for fault in faults:
        path = tuple(fault.path.partition("[")[0].split("."))
        if ".".join(path) not in _MEANING and _has(data, path):
            yield path, Fault(".".join(path), fault.reason.partition(". ")[0].rstrip(".") + ".")


def _has(data: Any, path: Path) -> bool:  # noqa: ANN401 - JSON
    if not path:
        return True
    return isinstance(data, Mapping) and path[0] in data and _has(data[path[0]], path[1:])


def _pruned(data: Mapping[str, Any], removed: tuple[Path, ...]) -> dict[str, Any]:
    return without(data, _widest(data, removed))


def _widest(data: Mapping[str, Any], removed: tuple[Path, ...]) -> tuple[Path, ...]:
    """The same keys, with a whole mapping in place of its keys where none would stay: an empty one is no mapping."""
    found = list(removed)
    for path in sorted({path[:-1] for path in removed if len(path) > 1}, key=len, reverse=True):
        inside = data
        for key in path:
            inside = inside[key]
        if all((*path, key) in found for key in inside):
            found = [each for each in found if each[:-1] != path] + [path]
    return tuple(found)
