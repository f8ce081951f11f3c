"""Reads the workload objects that jobs are written as: PyTorchJob, batch/v1 Job, TrainJob."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from elastic_infra.config import ConfigError, Fault
from elastic_infra.importing.command_line import read_budgets
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
    replicas = spec.get("pytorchReplicaSpecs") or {}
    main = replicas.get("Worker") or replicas.get("Master")
    if not main or not isinstance(main.get("template"), Mapping):
        raise ConfigError([Fault("spec.pytorchReplicaSpecs", "has neither Worker nor Master with a template.")])
    policy = spec.get("elasticPolicy") or {}
    notes = []
    if "Master" in replicas:
        notes.append("has no Master: every node is a worker, and rank 0 is on any of them.")
        own = differing(main.get("template"), replicas["Master"].get("template"))
        notes += [f"leaves out what only the Master's pod has: {place}." for _, place in own]
    if policy.get("metrics"):
        notes.append("drops elasticPolicy.metrics: say what to follow in `autoscaling`.")
    run_policy, restart = _run_policy(spec.get("runPolicy") or {}), main.get("restartPolicy")
    if restart in {"OnFailure", "ExitCode"}:
        run_policy["restart_policy"] = restart
    elif restart is not None:
        notes.append(f"changes restartPolicy {restart} to that of run_policy.restart_policy.")
    count = sum(int(each.get("replicas", 1)) for each in replicas.values())
    processes = spec.get("nprocPerNode") or policy.get("nProcPerNode")
    elastic = {**_nodes(policy, count), **_processes(processes), **_rendezvous(policy)}
    return Workload(dict(main["template"]), {"run_policy": run_policy, "target": "pytorchjob"}, elastic, tuple(notes))


def _nodes(policy: Mapping[str, Any], count: int) -> Data:
    low, high = policy.get("minReplicas"), policy.get("maxReplicas")
    if low is None and high is None:
        return {"nnodes": str(count)}
    low, high = low or high, high or count
    return {"nnodes": f"{low}:{high}" if low != high else str(low), "initial_nodes": count}


def _processes(given: object) -> Data:
    """`cpu` counts cores, for which the config has no word: one process a node stands for it."""
    if given is None:
        return {}
    return {"nproc_per_node": "auto" if str(given) in {"auto", "cpu", "gpu"} else str(given)}


def _rendezvous(policy: Mapping[str, Any]) -> Data:
    found: Data = {}
    if policy.get("maxRestarts") is not None:
        found["max_restarts"] = policy["maxRestarts"]
    if budgets := read_budgets({each["key"]: str(each["value"]) for each in policy.get("rdzvConf") or ()}):
        found["rdzv_configs"] = budgets
    if str(policy.get("rdzvBackend", "")).startswith("etcd"):
        found["rdzv_backend"] = policy["rdzvBackend"]
        found["rdzv_endpoint"] = f"{policy.get('rdzvHost')}:{policy.get('rdzvPort', 2379)}"
    return found


def _batch_job(spec: Mapping[str, Any]) -> Workload:
    if not isinstance(spec.get("template"), Mapping):
        raise ConfigError([Fault("spec.template", "is missing.")])
    nodes = int(spec.get("parallelism") or 1)
    notes = []
    if nodes > 1 and spec.get("completionMode") != "Indexed":
        notes.append(f"becomes an Indexed Job of {nodes} nodes, for pods without an index have no order.")
    if int(spec.get("completions") or 1) not in {1, nodes}:
        notes.append("drops spec.completions: every node trains until the job ends.")
    unread = ("backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "successPolicy")
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
    gang_names = {
        "minAvailable": "min_available",
        "queue": "queue",
        "priorityClass": "priority_class",
        "scheduleTimeoutSeconds": "schedule_timeout_seconds",
    }
    if known := {gang_names[key]: value for key, value in gang.items() if key in gang_names}:
        found["scheduling_policy"] = known
    return found


_READERS: Final = {
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("batch", "Job"): _batch_job,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
}
"""What reads an object, by its API group and kind."""
