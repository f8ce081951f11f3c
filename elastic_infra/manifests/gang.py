"""What a gang scheduler reads: the minimum of nodes, as an object of its own or in the job, and which pods are meant.

Sources of the fields: https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.33.5/apis/scheduling/v1alpha1/types.go,
https://github.com/volcano-sh/apis/blob/v1.14.0/pkg/apis/scheduling/v1beta1/types.go and
https://github.com/kai-scheduler/KAI-Scheduler/blob/f32d56b867ad09d31c00adf8cd041de97feeeb5d/pkg/podgrouper/podgrouper/plugins/job/job_grouper.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests.figures import at, pod_template
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest, Value, without_none

VERSIONS: Final = {"coscheduling": "scheduling.x-k8s.io/v1alpha1", "volcano": "scheduling.volcano.sh/v1beta1"}
"""API versions of the PodGroups; KAI makes its own."""

COSCHEDULED: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
KAI_QUEUE: Final = "kai.scheduler/queue"
KAI_MEMBERS: Final = "kai.scheduler/batch-min-member"


def pod_group(name: str, config: JobConfig) -> Manifest | None:
    """The gang: at least `min_nodes` pods, since a job that has shrunk to them must be schedulable again."""
    gang = config.placement.gang
    if gang is None or gang.scheduler not in VERSIONS:
        return None
    return {
        "apiVersion": VERSIONS[gang.scheduler],
        "kind": "PodGroup",
        "metadata": metadata(name, ObjectNames(name).gang, config),
        "spec": without_none(
            minMember=config.elastic.min_nodes,
            queue=gang.queue,
            priorityClassName=config.placement.priority_class if gang.scheduler == "volcano" else None,
            scheduleTimeoutSeconds=gang.timeout_seconds,
        ),
    }


def pod_labels(name: str, config: JobConfig) -> dict[str, str]:
    """Labels of a node's pod by which its scheduler finds the gang."""
    gang = config.placement.gang
    if gang is None or gang.scheduler == "volcano":
        return {}
    return {COSCHEDULED: ObjectNames(name).gang} if gang.scheduler == "coscheduling" else {KAI_QUEUE: str(gang.queue)}


def pod_annotations(name: str, config: JobConfig) -> dict[str, str]:
    """Annotations of a node's pod by which its scheduler finds the gang."""
    gang = config.placement.gang
    if gang is None or gang.scheduler != "volcano":
        return {}
    return {VOLCANO_GROUP: ObjectNames(name).gang, **({} if gang.queue is None else {VOLCANO_QUEUE: gang.queue})}


def gang_queue(workload: Mapping[str, Value]) -> str | None:
    """The queue of a gang scheduler that a workload's pods name, for policies."""
    template = pod_template(workload)
    for path, key in (("metadata.labels", KAI_QUEUE), ("metadata.annotations", VOLCANO_QUEUE)):
        told = at(template, path)
        name = told.get(key) if isinstance(told, Mapping) else None
        if isinstance(name, str):
            return name
    return None


def job_annotations(config: JobConfig) -> dict[str, str]:
    """Annotations of a batch/v1 Job for KAI, which else takes each pod alone; of a PyTorchJob it reads the bounds."""
    gang = config.placement.gang
    is_told = gang is not None and gang.scheduler == "kai" and config.kind == "Job"
    return {KAI_MEMBERS: str(config.elastic.min_nodes)} if is_told else {}
