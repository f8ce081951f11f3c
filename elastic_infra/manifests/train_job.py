"""A TrainJob of Kubeflow Trainer, and the runtime that this TrainJob alone uses.

Trainer makes a JobSet of the two, and JobSet an Indexed Job. Trainer has no elastic PyTorch, but needs none: the number
of nodes is the most, and the launcher trains with those that have come. With `elastic.elastic_job_set` it is the number
with which the job begins: it changes in the JobSet, which Trainer leaves alone while the job runs:
https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/keps/463-ElasticJobsets and
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go

The runtime has no `torch` policy, so that Trainer adds no variable of torchrun's to those of the launcher:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/plainml/plainml.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.names import TRAIN_NODES
from elastic_infra.config.overlays import TRAIN_CONTAINER, TRAINING_CONTAINER
from elastic_infra.config.values import Late
from elastic_infra.manifests.batch_job import failure_handling, indexed_shape, job_template
from elastic_infra.manifests.figures import items
from elastic_infra.manifests.identity import run_id, taken_on, without_launcher
from elastic_infra.manifests.indexed_job import torchrun_variables
from elastic_infra.manifests.metadata import runtime_metadata, workload_metadata
from elastic_infra.manifests.model import Manifest, Value, without_none

GROUP: Final = "trainer.kubeflow.org"
VERSION: Final = f"{GROUP}/v1alpha1"
STEP: Final = f"{GROUP}/trainjob-ancestor-step"
"""The label by which Trainer knows the Job that trains."""


def training_runtime(name: str, config: JobConfig, launcher: str | Late | None) -> Manifest:
    """The runtime with the job's pods.

    The name holds a hash of the content: a TrainJob takes its runtime when it is made, and cannot change. Another
    content is another runtime, for which the TrainJob is made anew. A newer launcher alone is none.
    """
    template = job_template(name, config, launcher, [], torchrun_variables(name, config))
    job: dict[str, Value] = {
        "completionMode": "Indexed",
        **indexed_shape(),
        **failure_handling(config, TRAIN_CONTAINER),
        **without_none(activeDeadlineSeconds=config.run_policy.active_deadline_seconds),
    }
    nodes = config.initial_nodes
    return {
        "apiVersion": VERSION,
        "kind": "TrainingRuntime",
        "metadata": runtime_metadata(
            name, run_id(name, without_launcher(template), job, nodes, *taken_on(config)), config
        ),
        "spec": {
            "mlPolicy": {"numNodes": nodes},
            "template": {"spec": _job_set({**job, "template": renamed(template, TRAINING_CONTAINER, TRAIN_CONTAINER)})},
        },
    }


def _job_set(job: Mapping[str, Value]) -> Value:
    """The JobSet of one Job, without host names: nodes know each other by address, and the store by its Service."""
    trains: dict[str, Value] = {"metadata": {"labels": {STEP: "trainer"}}, "spec": job}
    return {
        "network": {"enableDNSHostnames": False},
        "replicatedJobs": [{"name": TRAIN_NODES, "replicas": 1, "template": trains}],
    }


def renamed(template: Mapping[str, Value], old: str, new: str) -> dict[str, Value]:
    """The pod's template with another name for one container: Trainer demands another one than the operator."""
    spec = template["spec"]
    if not isinstance(spec, Mapping):
        return {**template}
    containers: list[Value] = [
        {**each, "name": new} if each.get("name") == old else each for each in items(spec["containers"])
    ]
    return {**template, "spec": {**spec, "containers": containers}}


def train_job(name: str, config: JobConfig, runtime: Manifest) -> Manifest:
    """The job, which says nothing but which runtime it has, and whether it may run."""
    metadata, policy = runtime["metadata"], config.run_policy
    own = metadata["name"] if isinstance(metadata, Mapping) else None
    return {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": workload_metadata(name, config, _wait(config)),
        "spec": without_none(
            runtimeRef={"apiGroup": GROUP, "kind": "TrainingRuntime", "name": own},
            suspend=policy.suspend,
            managedBy=policy.managed_by,
        ),
    }


def _wait(config: JobConfig) -> dict[str, str]:
    if config.wait_for == "none":
        return {}
    return {"pulumi.com/timeoutSeconds": str(config.wait_timeout_seconds), "pulumi.com/waitFor": "condition=Complete"}
