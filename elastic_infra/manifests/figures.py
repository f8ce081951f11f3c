"""Reads the figures of a job back from its workload, for readers without a config: policies, previews by Pulumi."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final, cast

from elastic_infra.config.mount_paths import SHARED_MEMORY
from elastic_infra.config.resources import VENDOR_RESOURCES
from elastic_infra.config.values import any_quantity
from elastic_infra.manifests.model import Manifest, Manifests, Value

NO_LIMIT: Final = 2**31 - 1
"""The most that an int32 field of Kubernetes can hold: of failed pods and of GPUs, what no job reaches."""

WORKLOAD_KINDS: Final = ("PyTorchJob", "Job", "TrainJob")
"""Kinds of workload object, as `Manifests.workload` has them."""

RUNTIME_KIND: Final = "TrainingRuntime"
"""Kind of the object that holds a TrainJob's pods: `with_runtime` makes one object of both for the readers here."""


@dataclasses.dataclass(frozen=True)
class Figures:
    """Size and limits of one workload.

    Attributes:
        claims_per_node: claims of devices; what each brings is known in the cluster alone.
        memory: bytes a node; None without a limit.
        shared_memory: limit of /dev/shm as written, "off" without the volume, None without a limit.
        restarts_in_place: whether the backoff limit counts: of a PyTorchJob, failed containers that are restarted.
        backoff_limit: container restarts in place, or failed pods, that fail the job; None without a limit.
    """

    min_nodes: int
    max_nodes: int
    gpus_per_node: int
    claims_per_node: int
    memory: Decimal | None
    shared_memory: str | None
    max_restarts: int | None
    restarts_in_place: bool
    backoff_limit: int | None
    active_deadline_seconds: int | None
    ttl_seconds_after_finished: int | None


def figures(workload: Mapping[str, Value]) -> Figures:
    """The figures of a PyTorchJob, a batch/v1 Job or, with its runtime, a TrainJob of this package."""
    spec = at(workload, "spec")
    policy = at(spec, "elasticPolicy")
    life = at(spec, "runPolicy") if policy else spec
    low, high = _bounds(workload, policy)
    memory = at(container(workload), "resources.limits.memory")
    limit = _number(at(life, "backoffLimit"))
    return Figures(
        min_nodes=low,
        max_nodes=high,
        gpus_per_node=gpus_per_node(workload),
        claims_per_node=len([*items(at(container(workload), "resources.claims"))]),
        memory=any_quantity(memory),
        shared_memory=_shared_memory(workload),
        max_restarts=_number(at(policy, "maxRestarts") if policy else variable(workload, "PET_MAX_RESTARTS")),
        restarts_in_place=at(spec, "pytorchReplicaSpecs.Worker.restartPolicy") != "ExitCode",
        backoff_limit=None if limit == NO_LIMIT else limit,
        active_deadline_seconds=_number(at(life, "activeDeadlineSeconds")),
        ttl_seconds_after_finished=_number(at(life, "ttlSecondsAfterFinished")),
    )


def with_runtime(train_job: Mapping[str, Value], runtime: Mapping[str, Value]) -> dict[str, Value]:
    """A TrainJob with the fields of the Job that Trainer makes of its runtime, in the places that a Job has them."""
    made, own = only_job(at(runtime, "spec.template.spec")), at(train_job, "spec")
    return {
        **train_job,
        "spec": {
            **(made if isinstance(made, Mapping) else {}),
            "parallelism": at(runtime, "spec.mlPolicy.numNodes"),
            **(own if isinstance(own, Mapping) else {}),
        },
    }


def only_job(job_set: Value) -> Value:
    """The spec of the one Job in the spec of a TrainJob's JobSet."""
    return at(next(items(at(job_set, "replicatedJobs")), {}), "template.spec")


def workload_of(manifests: Manifests) -> Manifest:
    """The workload of rendered objects for the readers here, a TrainJob with its runtime."""
    runtime = manifests.runtime
    return manifests.workload if runtime is None else with_runtime(manifests.workload, runtime)


def of_runtime(runtime: Mapping[str, Value], job: str) -> dict[str, Value]:
    """The same where the TrainJob is not seen: its name is given, and its metadata are its runtime's."""
    own = renamed(at(runtime, "metadata"), job)
    return with_runtime({"apiVersion": runtime.get("apiVersion"), "kind": "TrainJob", "metadata": own}, runtime)


def renamed(metadata: Value, name: str) -> Mapping[str, Value]:
    """Metadata with another name; none of the others is read, as it may be known late."""
    return ChainMap({"name": name}, cast("dict[str, Value]", metadata) if isinstance(metadata, Mapping) else {})


def replicas(workload: Mapping[str, Value]) -> int:
    """How many nodes a workload should have now."""
    paths = ("spec.pytorchReplicaSpecs.Worker.replicas", "spec.parallelism")
    return next((count for path in paths if (count := _number(at(workload, path)))), 1)


def _bounds(workload: Mapping[str, Value], policy: Value) -> tuple[int, int]:
    """The fewest and the most nodes; an Indexed Job's own fields hold the number of now alone."""
    now = replicas(workload)
    low, _, high = str(variable(workload, "PET_NNODES") or "").partition(":")
    least, most = at(policy, "minReplicas") or low, at(policy, "maxReplicas") or high or low
    return _number(least) or now, _number(most) or now


def at(value: Value, path: str) -> Value:
    """The value at a dotted path; None where the path ends early."""
    return followed(value, path.split("."))


def followed(value: Value, keys: Iterable[str]) -> Value:
    """The value behind these keys, one mapping in another; None where they end early."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def pod_template(workload: Mapping[str, Value]) -> Value:
    """The template of the training pods."""
    return at(workload, "spec.pytorchReplicaSpecs.Worker.template") or at(workload, "spec.template")


def container(workload: Mapping[str, Value]) -> Value:
    """The container that trains: the first of the pod."""
    return next(items(at(pod_template(workload), "spec.containers")), None)


def every_container(workload: Mapping[str, Value]) -> list[Mapping[str, Value]]:
    """All containers of the training pods, those that come before the training too."""
    spec = at(pod_template(workload), "spec")
    return [*items(at(spec, "initContainers")), *items(at(spec, "containers"))]


def items(value: Value) -> Iterator[Mapping[str, Value]]:
    """The mappings of a list."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        yield from (item for item in value if isinstance(item, Mapping))


def words(value: Value) -> list[str]:
    """The words of a list; none of what is no list."""
    return [str(word) for word in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def variable(workload: Mapping[str, Value], name: str) -> Value:
    """The plain value of the container's variable; None without one.

    No other variable's value is read: in a preview by Pulumi it may be one that is known late, which raises.
    """
    found = [item for item in items(at(container(workload), "env")) if item.get("name") == name]
    return found[-1].get("value") if found else None


def variable_names(workload: Mapping[str, Value]) -> frozenset[str]:
    """Names of the container's variables, those from a Secret or a field too."""
    return frozenset(str(item.get("name")) for item in items(at(container(workload), "env")))


def run_of(workload: Mapping[str, Value]) -> Value:
    """The id of the workload's run in the store."""
    return at(workload, "spec.elasticPolicy.rdzvId") or variable(workload, "PET_RDZV_ID")


def gpus_per_node(workload: Mapping[str, Value], others: Iterable[str] = ()) -> int:
    """Accelerators that a pod holds.

    Args:
        others: names or patterns of resources that count too. Which one a job's `resources.gpu.resource` named, its
            objects do not tell.
    """
    patterns = (*_GPUS, *others)
    limits = [at(each, "resources.limits") for each in every_container(workload)]
    names = {name for each in limits if isinstance(each, Mapping) for name in each if _is_any(name, patterns)}
    return sum(_held(workload, name) for name in names)


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_GPUS: Final = (
    *(f"{name}*" for name in VENDOR_RESOURCES.values()),
    "nvidia.com/mig-*",
    "gpu.intel.com/*",
    "habana.ai/gaudi*",
)
"""Patterns of accelerators."""


def _held(workload: Mapping[str, Value], resource: str) -> int:
    """How many of a resource a pod holds at its largest, as the scheduler counts. Sidecars go on, others take turns.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    spec = at(pod_template(workload), "spec")
    sidecars, most = 0, 0
    for each in items(at(spec, "initContainers")):
        if each.get("restartPolicy") == "Always":
            sidecars += _limit(each, resource)
        else:
            most = max(most, sidecars + _limit(each, resource))
    return max(most, sidecars + sum(_limit(each, resource) for each in items(at(spec, "containers"))))


def _limit(container: Mapping[str, Value], resource: str) -> int:
    amount = followed(container, ("resources", "limits", resource))
    if not isinstance(amount, str):
        return _number(amount) or 0
    number = any_quantity(amount)
    return NO_LIMIT if number is None else int(number)  # what cannot be counted must not pass as nothing


def _number(value: Value) -> int | None:
    """A count; the engine hands numbers over as floats, Kubernetes' quantities are text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shared_memory(workload: Mapping[str, Value]) -> str | None:
    volume = volume_at(workload, SHARED_MEMORY)
    if volume is None:
        return "off"
    limit = at(volume, "emptyDir.sizeLimit")
    return limit if isinstance(limit, str) else None


def volume_at(workload: Mapping[str, Value], path: Value) -> Mapping[str, Value] | None:
    """The volume that the container has at a mount path; None without one."""
    mounts = [each for each in items(at(container(workload), "volumeMounts")) if each.get("mountPath") == path]
    volumes = {volume.get("name"): volume for volume in items(at(pod_template(workload), "spec.volumes"))}
    return volumes.get(mounts[0].get("name")) if mounts else None
