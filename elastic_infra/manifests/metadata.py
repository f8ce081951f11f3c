"""Labels and annotations, by which users and objects find the objects of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.manifests.model import Value, without_none

# https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
INSTANCE: Final = "app.kubernetes.io/instance"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
COMPONENT: Final = "app.kubernetes.io/component"

# https://github.com/kubeflow/trainer/blob/v1.9.4/pkg/apis/kubeflow.org/v1/common_types.go
OPERATOR_JOB: Final = "training.kubeflow.org/job-name"
OPERATOR_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
OPERATOR_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
"""Set by the operator on its pods. This package uses the label only in selectors: with it a Service would count as the
operator's."""

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Set by the Job controller on the pods of an Indexed Job, as a label and as an annotation:
https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode"""

QUEUE: Final = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"

# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/job/job_controller.go
PARTIAL_FROM: Final = "kueue.x-k8s.io/job-min-parallelism"
PARTIAL_COMPLETIONS: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
ELASTIC_QUEUE: Final = "kueue.x-k8s.io/elastic-job"
RERUN: Final = "elastic-infra/rerun"
ON_RESTART: Final = "elastic-infra/on-restart"
"""What an update that would restart the job does, where that is not `replace`: policies read it."""

SIZE_OWNER: Final = "elastic-infra/size-owner"
"""What sets the number of nodes of a job with a range of them: `config`, `autoscaler` or `queue`. Without this
annotation people do, by `elastic-infra scale`."""

MIN_NODES: Final = "elastic-infra/min-nodes"
"""On the pods of a job that grows into idle capacity: the minimum of its nodes. No other such job makes room for those
beyond it. The driver in the launcher reads the annotation."""

AVOID: Final = "elastic-infra/avoid"
"""On the pods that the driver puts on cluster nodes that the job of this name avoids."""

SKIP_AWAIT: Final = {"pulumi.com/skipAwait": "true"}
"""Do not wait for readiness: a job may queue for hours. https://www.pulumi.com/registry/packages/kubernetes/"""

FOREGROUND: Final = {"pulumi.com/deletionPropagationPolicy": "foreground"}
"""Deletion returns when the pods are gone, so that a replacement never meets them."""


def object_labels(name: str, config: JobConfig) -> dict[str, str]:
    """Labels of every object of the job."""
    return {**config.labels, INSTANCE: name, MANAGED_BY: "elastic-infra"}


def store_selector(name: str) -> dict[str, str]:
    """Labels that pick the store pod."""
    return {INSTANCE: name, COMPONENT: "rendezvous"}


def node_selector(name: str, config: JobConfig) -> dict[str, str]:
    """Labels that pick the nodes of a job: the operator's own, or else this package's."""
    if config.kind == "PyTorchJob":
        return {OPERATOR_JOB: name, OPERATOR_REPLICA_TYPE: "worker"}
    return {INSTANCE: name, COMPONENT: "worker"}


def node_index_label(config: JobConfig) -> str:
    """The label by which a controller numbers the nodes."""
    return OPERATOR_REPLICA_INDEX if config.kind == "PyTorchJob" else COMPLETION_INDEX


def metadata(
    name: str, object_name: str, config: JobConfig, annotations: Mapping[str, str] | None = None
) -> dict[str, Value]:
    """Metadata of one object; the namespace is always explicit."""
    merged = {**config.annotations, **(annotations or {})}
    labels: dict[str, Value] = {**object_labels(name, config)}
    body: dict[str, Value] = {"name": object_name, "namespace": config.namespace, "labels": labels}
    return body | ({"annotations": dict(merged)} if merged else {})


def workload_metadata(name: str, config: JobConfig, annotations: Mapping[str, str]) -> dict[str, Value]:
    """Metadata of the job itself: deleted in the foreground, and in its queue where it has one."""
    own = {**FOREGROUND, **_told_annotations(config), **_admission(config), **annotations}
    return _told(name, name, config, own)


def runtime_metadata(name: str, runtime: str, config: JobConfig) -> dict[str, Value]:
    """Metadata of a TrainJob's runtime, with what policies judge a job by: they see the job's pods in the runtime."""
    return _told(name, runtime, config, _told_annotations(config))


def _told(name: str, object_name: str, config: JobConfig, annotations: Mapping[str, str]) -> dict[str, Value]:
    queued = {QUEUE: config.placement.queue, QUEUE_PRIORITY: config.placement.kueue.priority_class}
    labels = {**object_labels(name, config), **without_none(**queued)}
    return {**metadata(name, object_name, config, annotations), "labels": labels}


def _admission(config: JobConfig) -> dict[str, str]:
    """What Kueue reads of a Job that it may admit in part."""
    mode = config.placement.kueue.mode
    if mode == "partial":
        return {PARTIAL_FROM: str(config.elastic.min_nodes), PARTIAL_COMPLETIONS: "true"}
    return {ELASTIC_QUEUE: "true"} if mode == "elastic" else {}


def _told_annotations(config: JobConfig) -> dict[str, str]:
    """What readers without the config want to know."""
    on_restart = config.run_policy.on_restart
    told = {} if on_restart == "replace" else {ON_RESTART: on_restart}
    owned = {SIZE_OWNER: config.size_owner} if config.elastic.is_range and config.size_owner != "scale" else {}
    return {**told, **owned}
