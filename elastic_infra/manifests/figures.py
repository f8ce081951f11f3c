"""Reads the figures of a job back from its workload, for readers without a config: policies, previews by Pulumi."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from elastic_infra.config.mount_paths import SHARED_MEMORY
from elastic_infra.config.resources import VENDOR_RESOURCES
from elastic_infra.config.values import quantity
from elastic_infra.manifests.model import Value

WORKLOAD_KINDS = ("PyTorchJob", "Job")
"""Kinds of workload object, as `Manifests.workload` has them."""


@dataclasses.dataclass(frozen=True)
class Figures:
    """Size and limits of one workload.

    Attributes:
        memory: bytes a node; None without a limit.
        shared_memory: limit of /dev/shm as written, "off" without the volume, None without a limit.
        restarts_in_place: whether failed containers are restarted; else their pods are made anew.
        backoff_limit: container restarts in place that fail the job; None without a limit.
    """

    min_nodes: int
    max_nodes: int
    gpus_per_node: int
    memory: Decimal | None
    shared_memory: str | None
    max_restarts: int | None
    restarts_in_place: bool
    backoff_limit: int | None
    active_deadline_seconds: int | None
    ttl_seconds_after_finished: int | None


def figures(workload: Mapping[str, Value]) -> Figures:
    """The figures of a PyTorchJob or a batch/v1 Job of this package."""
    spec = at(workload, "spec")
    policy = at(spec, "elasticPolicy")
    life = at(spec, "runPolicy") if policy else spec
    replicas = _number(at(spec, "pytorchReplicaSpecs.Worker.replicas")) or 1
    limits = at(container(workload), "resources.limits")
    memory = at(limits, "memory")
    return Figures(
        min_nodes=_number(at(policy, "minReplicas")) or replicas,
        max_nodes=_number(at(policy, "maxReplicas")) or replicas,
        gpus_per_node=_gpus(limits),
        memory=quantity(memory) if isinstance(memory, str) else None,
        shared_memory=_shared_memory(workload),
        max_restarts=_number(at(policy, "maxRestarts") if policy else variables(workload).get("PET_MAX_RESTARTS")),
        restarts_in_place=at(spec, "pytorchReplicaSpecs.Worker.restartPolicy") != "ExitCode",
        backoff_limit=_number(at(life, "backoffLimit")),
        active_deadline_seconds=_number(at(life, "activeDeadlineSeconds")),
        ttl_seconds_after_finished=_number(at(life, "ttlSecondsAfterFinished")),
    )


def at(value: Value, path: str) -> Value:
    """The value at a dotted path; None where the path ends early."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def pod_template(workload: Mapping[str, Value]) -> Value:
    """The template of the training pods."""
    return at(workload, "spec.pytorchReplicaSpecs.Worker.template") or at(workload, "spec.template")


def container(workload: Mapping[str, Value]) -> Value:
    """The container that trains: the first of the pod."""
    return next(items(at(pod_template(workload), "spec.containers")), None)


def items(value: Value) -> Iterator[Mapping[str, Value]]:
    """The mappings of a list."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        yield from (item for item in value if isinstance(item, Mapping))


def variables(workload: Mapping[str, Value]) -> Mapping[str, Value]:
    """The container's plain variables."""
    return {str(item["name"]): item.get("value") for item in items(at(container(workload), "env"))}


def _gpus(limits: Value) -> int:
    if not isinstance(limits, Mapping):
        return 0
    known = (*VENDOR_RESOURCES.values(), "nvidia.com/", "amd.com/", "gpu.intel.com/")
    return sum(_number(amount) or 0 for name, amount in limits.items() if name.startswith(known))


def _number(value: Value) -> int | None:
    """A count; the engine hands numbers over as floats, Kubernetes' quantities are text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shared_memory(workload: Mapping[str, Value]) -> str | None:
    mounts = items(at(container(workload), "volumeMounts"))
    name = next((mount.get("name") for mount in mounts if mount.get("mountPath") == SHARED_MEMORY), None)
    volumes = {volume.get("name"): volume for volume in items(at(pod_template(workload), "spec.volumes"))}
    if name is None or name not in volumes:
        return "off"
    limit = at(volumes[name], "emptyDir.sizeLimit")
    return limit if isinstance(limit, str) else None
