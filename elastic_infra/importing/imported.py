"""Puts the readers together: a valid config, an overlay for what it has no field for, and what is different then."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from elastic_infra.config import ConfigError, Fault, JobConfig
from elastic_infra.config.env import reserved
from elastic_infra.config.overlays import TRAIN_CONTAINER, TRAINING_CONTAINER
from elastic_infra.config.pod_rules import is_own_key
from elastic_infra.importing import pod
from elastic_infra.importing.command_line import UNKNOWN, Command, is_program, read_command
from elastic_infra.importing.kinds import read_workload
from elastic_infra.importing.metadata import is_of_job_controller
from elastic_infra.importing.patch import differing, missing, places
from elastic_infra.importing.plain import without_nulls
from elastic_infra.importing.size import elastic_of, multiplied, processes_of
from elastic_infra.manifests import render
from elastic_infra.manifests.figures import pod_template, workload_of
from elastic_infra.manifests.train_job import renamed

Data = dict[str, Any]

PLACEHOLDER_IMAGE = "IMAGE"
"""In place of the image, which a command line does not tell."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """A job file and what it changes.

    Attributes:
        job: content of the file: a valid config.
        notes: what the config cannot say, and what differs from the original, a line each.
    """

    job: Data
    notes: tuple[str, ...]


def import_command(words: Sequence[str], name: str) -> Imported:
    """The job of a torchrun command line.

    Raises:
        ConfigError: it cannot be read.
    """
    command = read_command(words)
    env = {key: {"value": value} for key, value in command.env.items()}
    elastic = {**processes_of(command, "1"), **command.elastic}
    job, dropped = _valid(_merged(name, command.fields, {"env": env, "elastic": elastic}))
    return Imported(job, ("needs an image: a command line does not name it.", *command.notes, *dropped))


def import_manifest(manifest: Mapping[str, Any], name: str) -> Imported:
    """The job of a workload object.

    Args:
        name: of an object without one.

    Raises:
        ConfigError: it cannot be read.
    """
    workload = read_workload(without_nulls(manifest))
    template, renamed = pod.normalized(workload.template)
    container = pod.training_container(template)
    if not container:
        raise ConfigError([Fault("containers", "has no container, so nothing runs.")])
    command = _command(container)
    template = pod.with_variables(template, command.env)
    elastic, told = elastic_of(command, workload)
    job, dropped = _valid(_merged(name, workload.fields, pod.fields(template), command.fields, {"elastic": elastic}))
    job, refused = _with_overlay(job, template)
    changes = _told(differing(template, _rendered(job)))
    notes = (*workload.notes, *renamed, *command.notes, *told, *multiplied(command, JobConfig.from_mapping(job)))
    return Imported(job, (*notes, *dropped, *refused, *changes))


def _command(container: Mapping[str, Any]) -> Command:
    """What a container runs.

    Raises:
        ConfigError: only the image tells it, or it cannot be read.
    """
    program, arguments = (list(map(str, container.get(key) or ())) for key in ("command", "args"))
    if not program and not (arguments and is_program(arguments[0])):
        raise ConfigError([Fault("command", UNKNOWN)])
    command = read_command([*program, *arguments], pod.plain_variables(container))
    return command if program else dataclasses.replace(command, notes=(_NO_ENTRYPOINT, *command.notes))


_NO_ENTRYPOINT: Final = "drops the image's own ENTRYPOINT: the container's args are run as the command."


def _told(changes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each place; items of one list share a line."""
    lines: dict[tuple[str, str], list[str]] = {}
    for verb, place in changes:
        parent, bracket, item = place.rpartition("[")
        key = (verb, parent) if bracket and place.endswith("]") else (verb, place)
        lines.setdefault(key, []).append(item.strip("]'") if key[1] == parent else "")
    for (verb, place), items in lines.items():
        yield f"{verb} {place}: {', '.join(items)}." if any(items) else f"{verb} {place}."


def _merged(name: str, *parts: Mapping[str, Any]) -> Data:
    job: Data = {"name": name}
    for part in parts:
        job |= part
    if queue := job.pop("queue", None):
        job["placement"] = {**job.get("placement", {}), **queue}
    if "image" not in job:
        job["image"] = PLACEHOLDER_IMAGE
    return {key: value for key, value in job.items() if value not in (None, {}, [])}


def _valid(job: Data) -> tuple[Data, tuple[str, ...]]:
    """The fields that hold together; what is refused beside what must be there is left out, and told.

    Raises:
        ConfigError: what must be there is refused.
    """
    notes: list[str] = []
    while True:  # each round takes a field out, or raises
        try:
            JobConfig.from_mapping(job)
        except ConfigError as error:
            fault = error.faults[0]
            job = _without(job, fault)
            notes.append(f"leaves out {fault}")
        else:
            return job, tuple(notes)


def _without(job: Data, fault: Fault) -> Data:
    """The job without the value that is refused."""
    top, below, *_ = (*re.split(r"[.\[]", fault.path), "")
    is_size = top == "elastic" and (below in _SIZE or below not in job.get(top, {}))
    if is_size or top in _WHAT_RUNS or top not in job:
        raise ConfigError([fault])
    return _pruned(job, fault.path)


_WHAT_RUNS: Final = frozenset({"image", "script", "module", "command", "name"})
_SIZE: Final = frozenset({"nnodes", "initial_nodes", "nproc_per_node"})


def _pruned(tree: Data, path: str) -> Data:
    """A mapping without what a path leads to, as deep as it leads through mappings, and without an empty rest."""
    head, _, rest = path.partition(".")
    key = path if path in tree else head.partition("[")[0]
    inner = tree.get(key)
    within = _pruned(inner, rest) if isinstance(inner, dict) and rest and key != path else inner
    is_found = isinstance(inner, dict) and within not in (inner, {})
    return {name: within if name == key else value for name, value in tree.items() if name != key or is_found}


def _with_overlay(job: Data, template: Data) -> tuple[Data, tuple[str, ...]]:
    rendered = _rendered(job)
    patch = missing(_overlayable(template, rendered), rendered)
    if patch is None:
        return job, ()
    overlaid = {**job, "overlays": {"pod": patch}}
    try:
        JobConfig.from_mapping(overlaid)
    except ConfigError as error:
        return job, tuple(f"leaves out {fault}" for fault in error.faults)
    return overlaid, tuple(f"has no field for {place}: overlays.pod has it." for place in places(patch))


def _overlayable(template: Data, rendered: Data) -> Data:
    """What an overlay may hold of a template, beside what is rendered without it."""
    ports = pod.training_container(rendered).get("ports") or ()
    taken = {port["name"]: port["containerPort"] for port in ports}
    spec = {key: value for key, value in template["spec"].items() if key not in _NOT_OVERLAID}
    spec["containers"] = [
        _overlayable_container(each, taken) if each.get("name") == TRAINING_CONTAINER else each
        for each in spec.get("containers", ())
    ]
    metadata = {
        kind: {key: value for key, value in (template["metadata"].get(kind) or {}).items() if not _is_set(key)}
        for kind in ("labels", "annotations")
    }
    return {"metadata": metadata, "spec": spec}


def _is_set(key: str) -> bool:
    return is_own_key(key) or is_of_job_controller(key)


_NOT_OVERLAID = frozenset({"hostname", "restartPolicy", "subdomain", "terminationGracePeriodSeconds", "tolerations"})


def _overlayable_container(container: Mapping[str, Any], taken: Mapping[str, int]) -> Data:
    """Of the training container.

    Args:
        taken: ports by their names, of which the container may have no other.
    """
    kept = {key: value for key, value in container.items() if key not in {"command", "args", "image"}}
    if "env" in kept:
        kept["env"] = [each for each in kept["env"] if not reserved(str(each.get("name")))]
    if "ports" in kept:
        kept["ports"] = [each for each in kept["ports"] if _is_free(each, taken)]
    return kept


def _is_free(port: Mapping[str, Any], taken: Mapping[str, int]) -> bool:
    number = port.get("containerPort")
    return bool(taken.get(str(port.get("name")), number) == number)


def _rendered(job: Data) -> Data:
    """The pod's template, with the name of its container that overlays have whatever the workload."""
    config = JobConfig.from_mapping(job)
    template = cast("Data", pod_template(workload_of(render(str(job["name"]), config))))
    return renamed(template, TRAIN_CONTAINER, TRAINING_CONTAINER) if config.kind == "TrainJob" else template
