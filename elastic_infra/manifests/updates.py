"""Which changes of an object can be rolled out in place, and which parts somebody else owns.

The operator never rolls a changed PyTorchJob out to pods that exist (its pods would be a mix of old and new), so
these parts replace the job. Used by the component as Pulumi options and by the preview to predict them.
"""

from __future__ import annotations

from typing import Final

from elastic_infra.config import JobConfig

PYTORCH_JOB_RESTARTS: Final = (
    "spec.elasticPolicy",
    "spec.nprocPerNode",
    "spec.pytorchReplicaSpecs.Worker.restartPolicy",
    "spec.pytorchReplicaSpecs.Worker.template",
    "spec.runPolicy.managedBy",
    "spec.runPolicy.schedulingPolicy",
)
"""Paths of a PyTorchJob whose change replaces it."""

JOB_RESTARTS: Final = ("spec.template", "spec.podFailurePolicy", "spec.managedBy")
"""Paths of a batch/v1 Job that Kubernetes refuses to change."""

REPLICAS: Final = "spec.pytorchReplicaSpecs.Worker.replicas"
"""Number of nodes: an autoscaler's while there is one."""

QUEUE_OWNED: Final = (
    "spec.pytorchReplicaSpecs.Worker.template.spec.nodeSelector",
    "spec.pytorchReplicaSpecs.Worker.template.spec.tolerations",
    "spec.runPolicy.suspend",
)
"""What Kueue writes into an admitted PyTorchJob."""

QUEUE_OWNED_JOB: Final = ("spec.template.spec.nodeSelector", "spec.template.spec.tolerations", "spec.suspend")
"""What Kueue writes into an admitted batch/v1 Job."""


def restart_paths(config: JobConfig) -> tuple[str, ...]:
    """Paths of the workload whose change replaces it."""
    return JOB_RESTARTS if config.is_single_pod else PYTORCH_JOB_RESTARTS


def foreign_paths(config: JobConfig) -> tuple[str, ...]:
    """Paths of the workload that others write after it is created, to be left as they are."""
    queued = config.placement.queue is not None
    if config.is_single_pod:
        return QUEUE_OWNED_JOB if queued else ()
    return ((REPLICAS,) if config.autoscaling is not None else ()) + (QUEUE_OWNED if queued else ())
