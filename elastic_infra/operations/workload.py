"""A job's workload object in a cluster: its state, its size, and what sets the size."""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from elastic_infra.config.overlays import TRAIN_CONTAINER, TRAINING_CONTAINER
from elastic_infra.launcher.settings import env_name
from elastic_infra.manifests.figures import at, figures, items, replicas, variable
from elastic_infra.manifests.metadata import QUEUE, SIZE_OWNER
from elastic_infra.operations.objects import Object, conditions, moment, name_of, part, text, whole

State = Literal["waits", "running", "suspended", "queued", "succeeded", "failed"]
"""``waits``: no pod of it has run yet. ``queued``: suspended, and in a queue that decides when it runs."""

Owner = Literal["config", "autoscaler", "queue", "scale"]
"""What sets the number of nodes: the config, an autoscaler, Kueue, or people by `elastic-infra scale`."""

ENDED: Final = ("succeeded", "failed")

# https://github.com/kubeflow/trainer/blob/v1.9.4/pkg/apis/kubeflow.org/v1/common_types.go and
# https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
_ENDS: Final[dict[str, State]] = {
    "Succeeded": "succeeded",
    "Complete": "succeeded",
    "SuccessCriteriaMet": "succeeded",  # decided: the Job is complete once its last pod has ended
    "Failed": "failed",
    "FailureTarget": "failed",  # the same
}


@dataclasses.dataclass(frozen=True)
class Size:
    """The number of nodes.

    Attributes:
        nodes: how many there should be now.
        unit: nodes train in multiples of this number.
    """

    nodes: int
    min_nodes: int
    max_nodes: int
    unit: int
    owner: Owner


def size(workload: Object) -> Size:
    """The size of a job."""
    known = figures(workload)
    unit = variable(workload, env_name("node_unit"))
    is_range = known.min_nodes < known.max_nodes
    told = part(workload, "metadata.annotations").get(SIZE_OWNER)
    others: dict[object, Owner] = {"config": "config", "autoscaler": "autoscaler", "queue": "queue"}
    owner: Owner = others.get(told, "scale") if is_range else "config"
    return Size(
        replicas(workload),
        known.min_nodes,
        known.max_nodes,
        unit=int(unit) if isinstance(unit, str) and unit.isdecimal() else 1,
        owner=owner,
    )


def state(workload: Object) -> State:
    """Where a job is in its life."""
    now = {str(each.get("type")) for each in conditions(workload)}
    for condition, end in _ENDS.items():
        if condition in now:
            return end
    if at(workload, "spec.runPolicy.suspend") is True or at(workload, "spec.suspend") is True or "Suspended" in now:
        return "queued" if queue(workload) else "suspended"
    told = (part(workload, "status"), *items(at(workload, "status.jobsStatus")))  # the second of a TrainJob's Jobs
    is_active = any(whole(each, "active") or whole(each, "ready") for each in told)
    return "running" if now & {"Running", "Restarting"} or is_active else "waits"


def queue(workload: Object) -> str:
    """The queue of Kueue that decides when the job runs; empty without one."""
    return str(part(workload, "metadata.labels").get(QUEUE) or "")


def since(workload: Object) -> float | None:
    """When the job was suspended where it is, or else started, or else made."""
    for each in conditions(workload):
        if each.get("type") == "Suspended":
            return moment(each.get("lastTransitionTime"))
    return moment(at(workload, "status.startTime")) or moment(at(workload, "metadata.creationTimestamp"))


def ended(workload: Object) -> float | None:
    """When the job ended."""
    ends = [each for each in conditions(workload) if each.get("type") in _ENDS]
    return moment(ends[0].get("lastTransitionTime")) if ends else None


def why_failed(workload: Object) -> str:
    """The controller's word for it; empty where the job has not failed."""
    failed = next((each for each in conditions(workload) if _ENDS.get(str(each.get("type"))) == "failed"), None)
    return (text(failed, "message") or text(failed, "reason")) if failed else ""


def workers_per_node(workload: Object) -> int:
    """Worker processes on each node."""
    given = text(workload, "spec.nprocPerNode") or str(variable(workload, "PET_NPROC_PER_NODE"))
    return int(given) if given.isdecimal() else 1


def training_container(workload: Object) -> str:
    """Name of the container that trains."""
    return TRAIN_CONTAINER if workload.get("kind") == "TrainJob" else TRAINING_CONTAINER


def status_port(workload: Object) -> int | None:
    """The port of `launcher.metrics_port`."""
    port = variable(workload, env_name("metrics_port"))
    return int(port) if isinstance(port, str) and port.isdecimal() and int(port) else None


def writes_events_to_its_log(workload: Object) -> bool:
    """Whether `launcher.events` is `-`, so that the pods' logs hold the launchers' event lines."""
    return variable(workload, env_name("events")) == "-"


def described(workload: Object) -> str:
    """A job in a message: ``train in namespace team``."""
    return f"{name_of(workload)} in namespace {text(workload, 'metadata.namespace')}"
