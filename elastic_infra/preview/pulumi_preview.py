"""A comparison out of a real `pulumi preview --json`: the engine's own word on what is replaced.

There is no config in it, so that changes are named by their place in the objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from elastic_infra.config.workdir import by_path
from elastic_infra.manifests.figures import (
    RUNTIME_KIND,
    WORKLOAD_KINDS,
    at,
    figures,
    items,
    pod_template,
    with_runtime,
)
from elastic_infra.manifests.updates import QUEUE_RESTARTS, RULES, RUNTIME_RESTARTS
from elastic_infra.preview import tree
from elastic_infra.preview.deltas import gibibytes, restarts_within
from elastic_infra.preview.effects import workload_effects
from elastic_infra.preview.engine_secrets import is_secret, named_secrets, told_apart
from elastic_infra.preview.model import (
    Change,
    Comparison,
    Consequence,
    Delta,
    JobDiff,
    SideFault,
    in_order,
    taken_over,
    worst,
)
from elastic_infra.preview.redaction import HIDDEN, redacted, without_secrets
from elastic_infra.preview.tree import differences, written

JOB_TYPE: Final = "elastic-infra:index:ElasticTrainingJob"
"""Type token of the component, part of the URN of each of its objects."""

LAUNCHER_CHANGED: Final = "launcher changed"
FILES: Final = (tree.Step("workdir"), tree.Step("files"))
"""Place of local code in a config."""

RESTARTS: Final = {
    **{kind: rules.restarts + QUEUE_RESTARTS for kind, rules in RULES.items()},
    RUNTIME_KIND: RUNTIME_RESTARTS,
}

HOLD_PODS: Final = (WORKLOAD_KINDS, (RUNTIME_KIND,))
"""Kinds of the objects that may hold a job's pods."""

_REPLACING: Final = frozenset({"replace", "create-replacement", "delete-replaced"})
_KUBERNETES: Final = "$kubernetes:"
"""In the type of every child that is an object; the records of what must not change are none."""
Step = Mapping[str, Any]


class SecretChange(NamedTuple):
    """A Secret whose content changes, and the places in it."""

    namespace: object
    name: object
    paths: str


class PreviewError(ValueError):
    """Not the output of `pulumi preview --json`."""


def read_preview(path: Path) -> Comparison:
    """The comparison in a file.

    Raises:
        PreviewError: it cannot be read, or is something else.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}."
        raise PreviewError(message) from None
    except (ValueError, RecursionError):
        message = f"is not JSON. {_MAKE}"
        raise PreviewError(message) from None
    if reason := _misshapen(document):
        message = f"is not the output of `pulumi preview --json`: {reason}. {_MAKE}"
        raise PreviewError(message)
    return from_preview(document)


_MAKE: Final = "Make it with: pulumi preview --json > preview.json"


def _misshapen(document: object) -> str | None:
    """What is wrong with the shape of a preview. Pulumi leaves out lists that are empty."""
    if not isinstance(document, Mapping):
        return "it is no object"
    for key in ("steps", "diagnostics"):
        if not isinstance(document.get(key, []), list):
            return f"its {key} are no list"
    wrong = (number for number, step in enumerate(document.get("steps", []), 1) if not _is_step(step))
    return f"its step {number} is none" if (number := next(wrong, None)) else None


def _is_step(step: object) -> bool:
    """Whether it names what is done to which resource; the states and their differences may be missing."""
    return (
        isinstance(step, Mapping)
        and all(isinstance(step.get(key), str) for key in ("op", "urn"))
        and all(isinstance(step.get(key) or {}, Mapping) for key in ("oldState", "newState", "detailedDiff"))
    )


def from_preview(document: Mapping[str, Any]) -> Comparison:
    """The jobs in a parsed preview, and the errors that the engine reported."""
    groups: dict[str, list[Step]] = {}
    for step in document.get("steps", []):
        if owner := _owner(step):
            groups.setdefault(owner, []).append(step)
    renamed = _renamed(groups)
    secrets = tuple(_changed_secrets(document.get("steps", [])))
    declared = ((urn, steps) for urn, steps in groups.items() if urn not in renamed.values())
    jobs = in_order(_job(urn, steps, renamed.get(urn), secrets) for urn, steps in declared)
    faults = (
        SideFault("head", _name(str(each.get("urn", "pulumi"))), without_secrets(str(each.get("message", "")).strip()))
        for each in document.get("diagnostics", [])
        if isinstance(each, Mapping) and each.get("severity") == "error"
    )
    return Comparison(jobs, tuple(faults))


def _owner(step: Step) -> str | None:
    """URN of the job that a step's resource belongs to, or is."""
    state = step.get("newState") or step.get("oldState") or {}
    for urn in (str(step.get("urn", "")), str(state.get("parent", ""))):
        if _type(urn).rpartition("$")[2] == JOB_TYPE:
            return urn
    return None


def _renamed(groups: Mapping[str, Sequence[Step]]) -> dict[str, str]:
    """New URN to old URN of components that declare one job under another name: one is made, one is deleted."""
    found: dict[str, dict[tuple[str, str], str]] = {"create": {}, "delete": {}}
    for urn, steps in groups.items():
        for step in steps:
            state = "newState" if step["op"] == "create" else "oldState"
            if step["urn"] == urn and step["op"] in found and (name := _inputs(step, state).get("name")):
                found[str(step["op"])][_type(urn), str(name)] = urn
    return {urn: found["delete"][job] for job, urn in found["create"].items() if job in found["delete"]}


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _type(urn: str) -> str:
    parts = urn.split("::")
    return parts[2] if len(parts) > 2 else ""  # noqa: PLR2004 - urn:pulumi:stack::project::type::name


def _job(urn: str, steps: Sequence[Step], former: str | None, secrets: Sequence[SecretChange]) -> JobDiff:
    """One job.

    Args:
        former: the URN of its component before a rename.
        secrets: the Secrets that change, of the whole program.
    """
    ops = {str(step["op"]) for step in steps if step["urn"] == urn}
    children = [step for step in steps if step["urn"] != urn and _KUBERNETES in _type(str(step["urn"]))]
    name = _name(urn)
    old, new = _workload(children, "oldState"), _workload(children, "newState")
    figure = _deltas(old, new)
    if new and any(step["op"] == "import" for step in children):
        return taken_over(name)
    if ops & {"create", "delete"} and former is None:
        return JobDiff(name, Consequence.ADDED if "create" in ops else Consequence.REMOVED, deltas=figure)
    named_before, named_after = at(old, "metadata.name"), at(new, "metadata.name")
    is_renamed = bool(old and new and named_before != named_after)
    changes = [Change("Pulumi resource", _name(former), name, Consequence.NONE)] if former else []
    if is_renamed:
        changes.append(Change("name", str(named_before), str(named_after), Consequence.RESTART))
    changes += (change for step in _last_steps(children) for change in _changes(step))
    changes += (read := [each for kind in HOLD_PODS for each in _read(_made(children, "newState", kind), secrets)])
    is_other = bool(old and new and old["kind"] != new["kind"])
    verdicts = (Consequence.RESTART if is_other else Consequence.NONE, *map(_verdict, children))
    consequence = worst(*verdicts, *(change.consequence for change in changes))
    return JobDiff(
        name=name,
        consequence=consequence,
        changes=tuple(changes),
        deltas=figure,
        warnings=(_STALE,) if read and consequence is not Consequence.RESTART else (),
        renamed_from=str(named_before) if is_renamed else None,
        loses_checkpoints=consequence is Consequence.RESTART and _volume(old) != _volume(new),
    )


_STALE: Final = (
    "pods that run keep the earlier content of the Secret. To have the job take the new one, change `run_policy.rerun`."
)


def _last_steps(children: Sequence[Step]) -> list[Step]:
    """One step an object: of a replacement the one that has both states."""
    steps: dict[str, Step] = {}
    for step in children:
        known = steps.get(step["urn"])
        if known is None or (_inputs(step, "oldState") and _inputs(step, "newState")):
            steps[step["urn"]] = step
    return list(steps.values())


def _verdict(step: Step) -> Consequence:
    if step["op"] == "same":
        return Consequence.NONE
    kind = (_inputs(step, "newState") or _inputs(step, "oldState")).get("kind")
    is_workload = kind in WORKLOAD_KINDS
    return Consequence.RESTART if is_workload and step["op"] in _REPLACING else Consequence.IN_PLACE


def _inputs(step: Step, state: str) -> dict[str, Any]:
    inputs = (step.get(state) or {}).get("inputs")
    return dict(inputs) if isinstance(inputs, Mapping) else {}


def _workload(children: Sequence[Step], state: str) -> dict[str, Any] | None:
    """The job's workload, a TrainJob with its runtime."""
    found, runtime = _made(children, state, WORKLOAD_KINDS), _made(children, state, (RUNTIME_KIND,))
    return with_runtime(found, runtime) if found and runtime else found


def _made(children: Sequence[Step], state: str, kinds: Sequence[str]) -> dict[str, Any] | None:
    """The object of one of these kinds."""
    found = (_inputs(step, state) for step in children)
    return next((inputs for inputs in found if inputs.get("kind") in kinds), None)


def _changes(step: Step) -> Iterator[Change]:
    old, new = _states(step)
    kind, verdict = str((new or old).get("kind")), _verdict(step)
    if verdict is Consequence.NONE:
        return
    if not old or not new:
        yield Change(f"{kind} {'added' if new else 'removed'}", None, None, verdict)
    elif step["urn"].endswith("-launcher") and at(old, "metadata.name") != at(new, "metadata.name"):
        yield Change(LAUNCHER_CHANGED, _text(at(old, "metadata.name")), _text(at(new, "metadata.name")), verdict)
    elif step["urn"].endswith("-workdir") and kind == "ConfigMap":
        before, after = (by_path(str(at(each, "data.files"))) for each in (old, new))
        for each in differences(before, after, FILES):
            yield Change(written(each.path), _text(each.old), _text(each.new), Consequence.RESTART)
    else:
        yield from _differing(kind, old, new, verdict)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _volume(workload: dict[str, Any] | None) -> tuple[object, object] | None:
    """Namespace and claim of the checkpoints."""
    if workload is None:
        return None
    volumes = items(at(pod_template(workload), "spec.volumes"))
    claims = (at(each, "persistentVolumeClaim.claimName") for each in volumes if each.get("name") == "checkpoint")
    return at(workload, "metadata.namespace"), next(claims, None)


def _differing(kind: str, old: dict[str, Any], new: dict[str, Any], verdict: Consequence) -> Iterator[Change]:
    restarting = RESTARTS.get(kind, ())
    reasons = {e.path: e.consequence for e in workload_effects(old, new, restarting, ())} if restarting else {}
    for difference in differences(old, new, keys_matter=False):
        path, is_order = f"{kind} {written(difference.path)}", difference.kind == "items"
        named = reasons.get(f"{path} (order)" if is_order else path, verdict)
        if is_secret(kind, difference):
            yield Change(path, HIDDEN, HIDDEN, named, (path,), is_secret=True)
        else:
            yield Change(path, redacted(path, difference.old), redacted(path, difference.new), named, (path,), is_order)


def _states(step: Step) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs before and after."""
    old = _inputs(step, "oldState")
    return old, told_apart(old, _inputs(step, "newState"), map(str, step.get("detailedDiff") or ()))


def _changed_secrets(steps: Sequence[Step]) -> Iterator[SecretChange]:
    for step in _last_steps(steps):
        old, new = _states(step)
        if old.get("kind") == new.get("kind") == "Secret":
            found = (each for each in differences(old, new, keys_matter=False) if is_secret("Secret", each))
            if paths := ", ".join(written(each.path) for each in found):
                yield SecretChange(at(new, "metadata.namespace") or "default", at(new, "metadata.name"), paths)


def _read(holder: dict[str, Any] | None, secrets: Sequence[SecretChange]) -> Iterator[Change]:
    """Changes of Secrets that the pods of a job read when they start. The object with the pods has the names alone."""
    if holder is None:
        return
    for place, name in named_secrets(holder):
        for each in secrets:
            if (each.namespace, each.name) == (at(holder, "metadata.namespace"), name):
                reached = f"{holder['kind']} {written(place)}"
                path = f"Secret {name} {each.paths}"
                yield Change(path, HIDDEN, HIDDEN, Consequence.NONE, (reached,), is_secret=True)


def _deltas(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Mapping[str, Delta]:
    before, after = _figures(old), _figures(new)
    pairs = {name: Delta(before.get(name), after.get(name)) for name in after or before}
    return {name: delta for name, delta in pairs.items() if delta.old != delta.new}


def _figures(workload: dict[str, Any] | None) -> dict[str, str | int | None]:
    if workload is None:
        return {}
    found = figures(workload)
    fixed = found.min_nodes == found.max_nodes
    return {
        "nodes": str(found.max_nodes) if fixed else f"{found.min_nodes}:{found.max_nodes}",
        "gpus_at_most": found.gpus_per_node * found.max_nodes or None,
        "device_claims_at_most": found.claims_per_node * found.max_nodes or None,
        "memory_at_most": gibibytes(found.memory * found.max_nodes) if found.memory is not None else None,
        "shared_memory": found.shared_memory or "up to the memory limit",
        "max_restarts": found.max_restarts,
        "container_restarts": restarts_within(found.backoff_limit, found.restarts_in_place),
    }
