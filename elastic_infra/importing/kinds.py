"""Reads the workload objects that jobs are written as: PyTorchJob, batch/v1 Job, TrainJob."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elastic_infra.config import ConfigError, Fault
from elastic_infra.importing.command_line import processes, read_budgets, unread_settings
from elastic_infra.importing.metadata import metadata_fields
from elastic_infra.importing.patch import differing

Data = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One workload object, read.

    Attributes:
        template: of the training pods.
        fields: of the config, but for what the pods give.
        elastic: fields of `elastic` that the object gives.
        notes: what importing changes.
    """

    template: Data
    fields: Data
    elastic: Data
    notes: tuple[str, ...] = ()


def read_workload(manifest: Mapping[str, Any]) -> Workload:
    """The workload in a manifest.

    Raises:
        ConfigError: it is of another kind, or lacks its pods.
    """
    group, kind = str(manifest.get("apiVersion", "")).partition("/")[0], manifest.get("kind")
    read = _READERS.get((group, str(kind)))
    if read is None:
        known = ", ".join(f"{kind} ({group})" for group, kind in _READERS)
        raise ConfigError([Fault("kind", f"is {kind!r} of {group!r}. Known are: {known}.")])
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        raise ConfigError([Fault("spec", "is missing, or is no mapping.")])
    found = read(spec)
    fields, notes = metadata_fields(manifest.get("metadata") or {})
    return dataclasses.replace(found, fields={**fields, **found.fields}, notes=(*notes, *found.notes))


def _pytorch_job(spec: Mapping[str, Any]) -> Workload:
    replicas: Mapping[str, Any] = spec.get("pytorchReplicaSpecs") or {}
    main = replicas.get("Worker") or replicas.get("Master")
    if not main or not isinstance(main.get("template"), Mapping):
        raise ConfigError([Fault("spec.pytorchReplicaSpecs", "has neither Worker nor Master with a template.")])
    policy, life = spec.get("elasticPolicy") or {}, spec.get("runPolicy") or {}
    notes = [*_unread_policy(policy), *_unread_gang(life)]
    if "Master" in replicas:
        notes.append("has no Master: every node is a worker, and rank 0 is on any of them.")
        own = differing(main.get("template"), replicas["Master"].get("template"))
        notes += [f"leaves out what only the Master's pod has: {place}." for _, place in own]
    run_policy, restart = _run_policy(life), main.get("restartPolicy", _OPERATORS_RESTART)
    if restart in {"OnFailure", "ExitCode"}:
        run_policy["restart_policy"] = restart
    else:
        notes.append(f"changes restartPolicy {restart} to that of run_policy.restart_policy.")
    count = sum(
        _whole(f"spec.pytorchReplicaSpecs.{name}.replicas", each.get("replicas", 1)) for name, each in replicas.items()
    )
    given = spec.get("nprocPerNode") or policy.get("nProcPerNode")
    elastic = {**_nodes(policy, count), **_processes(given), **_rendezvous(policy)}
    return Workload(dict(main["template"]), {"run_policy": run_policy, "target": "pytorchjob"}, elastic, tuple(notes))


_OPERATORS_RESTART: Final = "OnFailure"
"""The training operator's default of a PyTorchJob's restartPolicy."""

_READ_POLICY: Final = frozenset(
    {"minReplicas", "maxReplicas", "nProcPerNode", "maxRestarts", "rdzvBackend", "rdzvHost", "rdzvPort", "rdzvConf"}
)


def _unread_policy(policy: Mapping[str, Any]) -> Iterator[str]:
    for name, value in policy.items():
        if name == "metrics":
            yield "drops elasticPolicy.metrics: say what to follow in `autoscaling`."
        elif name not in _READ_POLICY and value is not False:
            yield f"drops elasticPolicy.{name}: the launcher or the job's objects take its place."
    for key in unread_settings(_settings(policy)):
        yield f"drops {key} of elasticPolicy.rdzvConf: the launcher has its own."


def _settings(policy: Mapping[str, Any]) -> dict[str, str]:
    return {str(each.get("key")): str(each.get("value")) for each in policy.get("rdzvConf") or ()}


def _whole(place: str, given: object) -> int:
    """A number of pods.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(given, bool) or not str(given).isdecimal():
        raise ConfigError([Fault(place, "must be a whole number.")])
    return int(str(given))


def _nodes(policy: Mapping[str, Any], count: int) -> Data:
    low, high = policy.get("minReplicas"), policy.get("maxReplicas")
    if low is None and high is None:
        return {"nnodes": str(count)}
    low, high = low or high, high or count
    return {"nnodes": f"{low}:{high}" if low != high else str(low), "initial_nodes": count}


def _processes(given: object) -> Data:
    return {} if given is None else {"nproc_per_node": processes(given)}


def _rendezvous(policy: Mapping[str, Any]) -> Data:
    found: Data = {}
    if policy.get("maxRestarts") is not None:
        found["max_restarts"] = policy["maxRestarts"]
    if budgets := read_budgets(_settings(policy)):
        found["rdzv_configs"] = budgets
    if str(policy.get("rdzvBackend", "")).startswith("etcd"):
        found["rdzv_backend"] = policy["rdzvBackend"]
        found["rdzv_endpoint"] = f"{policy.get('rdzvHost')}:{policy.get('rdzvPort', 2379)}"
    return found


def _batch_job(spec: Mapping[str, Any]) -> Workload:
    if not isinstance(spec.get("template"), Mapping):
        raise ConfigError([Fault("spec.template", "is missing.")])
    nodes = _whole("spec.parallelism", spec.get("parallelism") or 1)
    notes = []
    if nodes > 1 and spec.get("completionMode") != "Indexed":
        notes.append(f"becomes an Indexed Job of {nodes} nodes, for pods without an index have no order.")
    if _whole("spec.completions", spec.get("completions") or 1) not in {1, nodes}:
        notes.append("drops spec.completions: every node trains until the job ends.")
    unread = (
        "backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "podReplacementPolicy", "successPolicy",
    )  # fmt: skip
    notes += [f"drops spec.{name}: this package has its own." for name in unread if spec.get(name) is not None]
    target = {"target": "job"} if nodes > 1 else {}
    fields = {"run_policy": _run_policy(spec), **target}
    return Workload(dict(spec["template"]), fields, {"nnodes": str(nodes)}, tuple(notes))


def _train_job(spec: Mapping[str, Any]) -> Workload:
    trainer = spec.get("trainer") or {}
    runtime = (spec.get("runtimeRef") or {}).get("name")
    notes = [f"leaves out what the runtime {runtime!r} adds, which only the cluster knows: image, volumes, policies."]
    unread = ("initializer", "runtimePatches", "podTemplateOverrides", "podSpecOverrides", "managedBy")
    notes += [f"drops spec.{name}." for name in unread if spec.get(name)]
    container = {
        "name": "pytorch",
        **{name: trainer[name] for name in ("image", "command", "args", "env") if trainer.get(name)},
        **({"resources": trainer["resourcesPerNode"]} if trainer.get("resourcesPerNode") else {}),
    }
    elastic = {"nnodes": str(trainer.get("numNodes") or 1), **_processes(trainer.get("numProcPerNode"))}
    template = {
        "metadata": {"labels": spec.get("labels") or {}, "annotations": spec.get("annotations") or {}},
        "spec": {"containers": [container]},
    }
    run_policy = {"suspend": spec["suspend"]} if spec.get("suspend") is not None else {}
    return Workload(template, {"run_policy": run_policy, "target": "trainjob"}, elastic, tuple(notes))


def _run_policy(given: Mapping[str, Any]) -> Data:
    names = {
        "cleanPodPolicy": "clean_pod_policy",
        "ttlSecondsAfterFinished": "ttl_seconds_after_finished",
        "activeDeadlineSeconds": "active_deadline_seconds",
        "backoffLimit": "backoff_limit",
        "suspend": "suspend",
        "managedBy": "managed_by",
    }
    found: Data = {names[key]: value for key, value in given.items() if key in names and value is not None}
    gang = given.get("schedulingPolicy") or {}
    if known := {_GANG[key]: value for key, value in gang.items() if key in _GANG}:
        found["scheduling_policy"] = known
    return found


_GANG: Final = {
    "minAvailable": "min_available",
    "queue": "queue",
    "priorityClass": "priority_class",
    "scheduleTimeoutSeconds": "schedule_timeout_seconds",
}


def _unread_gang(run_policy: Mapping[str, Any]) -> Iterator[str]:
    unread = [name for name in run_policy.get("schedulingPolicy") or () if name not in _GANG]
    yield from (f"drops runPolicy.schedulingPolicy.{name}: the config has no field for it." for name in unread)


_READERS: Final = {
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("batch", "Job"): _batch_job,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
}
"""What reads an object, by its API group and kind."""
