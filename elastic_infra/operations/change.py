"""What `scale` and `cancel` may do to a job: a decision on its workload object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from elastic_infra.operations import workload as jobs
from elastic_infra.operations.objects import Object, RefusedError, name_of, text

JOB_SET_FIXED: Final = (
    "JobSet refuses another number of nodes: its feature gate ElasticJobSet is off. Set featureGates: {ElasticJobSet: "
    "true} in the configuration of JobSet's controller, or take elastic.elastic_job_set out of the job's config."
)
NEW_RANGE: Final = "which makes the job anew from its checkpoint"


@dataclasses.dataclass(frozen=True)
class Suspension:
    """How a job is stopped.

    Attributes:
        patch: a merge patch of the workload.
        undo: the patch that has the job go on.
    """

    patch: Mapping[str, Any]
    undo: Mapping[str, Any]


def completions(nodes: int) -> Mapping[str, Any]:
    """A merge patch that gives an Indexed Job so many nodes: Kubernetes wants both numbers in one request."""
    return {"spec": {"parallelism": nodes, "completions": nodes}}


def job_set_size(nodes: int) -> list[Mapping[str, Any]]:
    """A JSON patch that gives the JobSet of a TrainJob so many nodes, as the driver in the launcher does."""
    paths = (f"/spec/replicatedJobs/0/template/spec/{field}" for field in completions(nodes)["spec"])
    return [{"op": "replace", "path": path, "value": nodes} for path in paths]


def check_resize(workload: Object, nodes: int) -> None:
    """Nothing where the job may have so many nodes.

    Raises:
        RefusedError: the job has ended, another sets its size, or the number is none that it can train with.
    """
    name, size = name_of(workload), jobs.size(workload)
    _check_alive(workload)
    if workload.get("kind") == "TrainJob":
        _check_job_set(workload, size, nodes)
    if size.min_nodes == size.max_nodes:
        message = (
            f"{name} has {_nodes(size.max_nodes)}, no range of them, so its size is the config's. Set elastic.nnodes "
            f'to a range such as "1:{max(nodes, 2)}", {NEW_RANGE}.'
        )
        raise RefusedError(message)
    if size.owner == "config":
        message = (
            f"The config sets the size of {name} (elastic.initial_nodes), and Pulumi would take another one back. Set "
            f"elastic.initial_nodes: {nodes} there, or leave that out so that `elastic-infra scale` sets the size; "
            f"either is a change {NEW_RANGE}."
        )
        raise RefusedError(message)
    if size.owner == "autoscaler":
        message = (
            f"An autoscaler sets the size of {name} and would move it back. Change the metrics of `autoscaling` or the "
            "range of elastic.nnodes, or take `autoscaling` out of the config."
        )
        raise RefusedError(message)
    if size.owner == "queue":
        message = (
            f"Kueue set the size of {name} when it admitted the job (placement.kueue.mode: partial), and refuses "
            f"another while the job runs. Set the mode to 'elastic', {NEW_RANGE}."
        )
        raise RefusedError(message)
    if not size.min_nodes <= nodes <= size.max_nodes:
        message = (
            f"{name} trains with {size.min_nodes} to {_nodes(size.max_nodes)}, and {nodes} is outside. Choose a number "
            f"of that range, or change elastic.nnodes, {NEW_RANGE}."
        )
        raise RefusedError(message)
    if nodes % size.unit:
        message = (
            f"{name} trains with multiples of {_nodes(size.unit)} (elastic.node_unit), so that a part of {nodes} would "
            f"wait. Choose {nodes - nodes % size.unit} or {nodes - nodes % size.unit + size.unit}."
        )
        raise RefusedError(message)


def _check_job_set(workload: Object, size: jobs.Size, nodes: int) -> None:
    """A TrainJob's own number of nodes never changes, and Trainer gives it to a JobSet that is suspended."""
    name = name_of(workload)
    if size.owner == "config":
        message = (
            f"{name} is a TrainJob, which keeps its {_nodes(size.nodes)} for its whole life: training runs with "
            f'those that have come. Change elastic.nnodes to a range that ends with the most nodes, such as "1:{nodes}"'
            f", {NEW_RANGE}; or set elastic.elastic_job_set without elastic.initial_nodes, where JobSet's feature gate "
            "ElasticJobSet is on; or take target 'job' or 'pytorchjob', whose size moves."
        )
        raise RefusedError(message)
    if queue := jobs.queue(workload):
        message = (
            f"{name} is in the Kueue queue {queue}, which counted its nodes when it admitted the job. Set target to "
            "'job' and placement.kueue.mode to 'elastic', whose size moves."
        )
        raise RefusedError(message)
    if jobs.state(workload) == "suspended":
        message = (
            f"{name} is suspended, and Trainer has a suspended TrainJob begin with the number of nodes of its config. "
            "Change the size once the job goes on."
        )
        raise RefusedError(message)


def suspension(workload: Object) -> Suspension | None:
    """How to stop a job; None where it is stopped already.

    Raises:
        RefusedError: the job has ended, or a queue would start it again.
    """
    _check_alive(workload)
    if queue := jobs.queue(workload):
        message = (
            f"Kueue decides when {name_of(workload)} runs (queue {queue}) and would start it again. Stop it there: "
            f"`kubectl get workloads -n {text(workload, 'metadata.namespace')}` names its Workload; set "
            "spec.active of that to false."
        )
        raise RefusedError(message)
    if jobs.state(workload) == "suspended":
        return None
    return Suspension(_suspended(workload, value=True), _suspended(workload, value=False))


def _suspended(workload: Object, *, value: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"suspend": value}
    return {"spec": {"runPolicy": spec} if workload.get("kind") == "PyTorchJob" else spec}


def _check_alive(workload: Object) -> None:
    state = jobs.state(workload)
    if state in jobs.ENDED:
        message = (
            f"{name_of(workload)} has {state} and has no pods to change. Change run_policy.rerun in its config to run "
            "it again."
        )
        raise RefusedError(message)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
