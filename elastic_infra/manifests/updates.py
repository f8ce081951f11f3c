"""Which changes of an object can be rolled out in place, and which parts belong to another writer.

The operator never rolls a changed PyTorchJob out to existing pods (its pods would be a mix of old and new), so changes
of these parts replace the job. The component hands the paths to Pulumi as options, and the preview predicts from them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.manifests.figures import followed
from elastic_infra.manifests.metadata import ELASTIC_QUEUE, PARTIAL_COMPLETIONS, PARTIAL_FROM, QUEUE, QUEUE_PRIORITY
from elastic_infra.manifests.model import Manifest, Manifests, Value

PYTORCH_JOB_RESTARTS: Final = (
    "spec.elasticPolicy",
    "spec.nprocPerNode",
    "spec.pytorchReplicaSpecs.Worker.restartPolicy",
    "spec.pytorchReplicaSpecs.Worker.template",
    "spec.runPolicy.managedBy",
    "spec.runPolicy.schedulingPolicy",
)
"""Paths of a PyTorchJob whose change replaces it."""

REPLICAS: Final = ("spec.pytorchReplicaSpecs.Worker.replicas",)
"""The path of a PyTorchJob's number of nodes, which belongs to an autoscaler or to `elastic-infra scale` unless the
config sets it: see `JobConfig.size_owner`."""

COMPLETIONS: Final = ("spec.parallelism", "spec.completions")
"""The same of an Indexed Job: Kubernetes refuses a change of one of the two alone."""

JOB_RESTARTS: Final = (
    "spec.template",
    "spec.podFailurePolicy",
    "spec.managedBy",
    "spec.completionMode",
    "spec.successPolicy",
    "spec.backoffLimitPerIndex",
    *COMPLETIONS,
)
"""Paths of a batch/v1 Job that Kubernetes refuses to change, and the number of nodes, for which Pulumi's provider
replaces the Job: https://github.com/pulumi/pulumi-kubernetes/blob/v4.32.0/provider/pkg/provider/diff.go"""

TRAIN_JOB_RESTARTS: Final = ("spec.runtimeRef", "spec.managedBy")
"""Paths of a TrainJob that Trainer refuses to change. Another content of its pods is another runtime:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go"""

RUNTIME_RESTARTS: Final = ("spec",)
"""Paths of a TrainJob's runtime whose change replaces the TrainJob, which has taken the runtime as it was."""

CLAIM_IDENTITY: Final = ("metadata.name", "metadata.namespace", "spec")
"""Paths of a PersistentVolumeClaim whose change makes it another, empty one, its size included:
https://github.com/pulumi/pulumi-kubernetes/blob/master/provider/pkg/provider/diff.go"""

QUEUE_RESTARTS: Final = (
    *(f'metadata.labels["{label}"]' for label in (QUEUE, QUEUE_PRIORITY)),
    *(f'metadata.annotations["{key}"]' for key in (PARTIAL_FROM, PARTIAL_COMPLETIONS, ELASTIC_QUEUE)),
)
"""Paths of any workload that Kueue refuses to change while the job runs:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/validation.go"""

QUEUE_OWNED: Final = (
    "spec.pytorchReplicaSpecs.Worker.template.spec.nodeSelector",
    "spec.pytorchReplicaSpecs.Worker.template.spec.tolerations",
    "spec.runPolicy.suspend",
)
"""The paths that Kueue writes in an admitted PyTorchJob."""

QUEUE_OWNED_JOB: Final = ("spec.template.spec.nodeSelector", "spec.template.spec.tolerations", "spec.suspend")
"""The paths that Kueue writes in an admitted batch/v1 Job."""

QUEUE_OWNED_TRAIN_JOB: Final = ("spec.runtimePatches", "spec.suspend")
"""The paths that Kueue writes in an admitted TrainJob."""


@dataclasses.dataclass(frozen=True)
class UpdateRules:
    """What an update of one kind of workload does.

    Attributes:
        restarts: paths whose change replaces the workload.
        size: paths of its number of nodes, which change together.
        queue: paths that Kueue writes in an admitted workload.
    """

    restarts: tuple[str, ...]
    size: tuple[str, ...]
    queue: tuple[str, ...]


RULES: Final[Mapping[str, UpdateRules]] = {
    "PyTorchJob": UpdateRules(PYTORCH_JOB_RESTARTS, REPLICAS, QUEUE_OWNED),
    "Job": UpdateRules(JOB_RESTARTS, COMPLETIONS, QUEUE_OWNED_JOB),
    "TrainJob": UpdateRules(TRAIN_JOB_RESTARTS, (), QUEUE_OWNED_TRAIN_JOB),
}
"""By the workload's kind."""


def restart_paths(config: JobConfig) -> tuple[str, ...]:
    """Paths of the workload whose change replaces it."""
    return RULES[config.kind].restarts + QUEUE_RESTARTS


def restarting(config: JobConfig, manifests: Manifests) -> Value:
    """What restarts the job or its store when it changes.

    Args:
        manifests: of `lasting`, or all with the same launcher, so that a newer launcher changes nothing.
    """
    store = manifests.store["spec"] if manifests.store else None
    return [replacing(config, manifests), store]


def replacing(config: JobConfig, manifests: Manifests) -> dict[str, Value]:
    """What replaces the workload when it changes."""
    own = parts(manifests.workload, (*restart_paths(config), "metadata.namespace"))
    return own if manifests.runtime is None else {**own, "runtime": parts(manifests.runtime, RUNTIME_RESTARTS)}


def foreign_paths(config: JobConfig, *, is_new: bool = False) -> tuple[str, ...]:
    """Paths of the workload that other writers change after its creation, and that an update leaves alone.

    Args:
        is_new: whether the job is made anew: then a size that people set begins with the number of the config, and
            what Kueue wrote for the job before is no more.
    """
    queue = RULES[config.kind].queue if config.placement.queue is not None and not is_new else ()
    is_set_here = config.size_owner == "config" or (config.begins_as_configured and is_new)
    return (() if is_set_here else size_paths(config)) + queue


def depends_on_novelty(config: JobConfig) -> bool:
    """Whether these paths are others where the job is made anew."""
    return foreign_paths(config) != foreign_paths(config, is_new=True)


def size_paths(config: JobConfig) -> tuple[str, ...]:
    """Paths of the workload that hold its number of nodes, which change together."""
    return RULES[config.kind].size


def parts(manifest: Manifest, paths: tuple[str, ...]) -> dict[str, Value]:
    """The parts of an object at these paths, those that it has."""
    found = {path: followed(manifest, steps(path)) for path in paths}
    return {path: part for path, part in found.items() if part is not None}


def steps(path: str) -> tuple[str, ...]:
    """The keys of a path as Pulumi spells it, where one with dots stands in brackets: `metadata.labels["a.b/c"]`."""
    return tuple(bracketed or key for bracketed, key in re.findall(r'\["([^"]+)"\]|([^.\[\]]+)', path))
