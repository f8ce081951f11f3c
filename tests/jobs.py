"""The smallest configs that a test can start from, and their objects as plain JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elastic_infra import JobConfig, render
from elastic_infra.manifests.figures import pod_template, workload_of

NAME = "job"
IMAGE = "registry.example.com/team/train:1"


def job(**fields: Any) -> JobConfig:
    """A valid config, with some fields as a `job.yaml` would spell them."""
    return JobConfig.from_mapping({"image": IMAGE, "script": "train.py", **fields})


def elastic(**fields: Any) -> JobConfig:
    """The same with two to four nodes."""
    return job(**{"elastic": {"nnodes": "2:4", **fields.pop("elastic", {})}, **fields})


def indexed(**fields: Any) -> JobConfig:
    """The same as an Indexed Job, without an operator."""
    return elastic(target="job", **fields)


def train_job(**fields: Any) -> JobConfig:
    """The same as a TrainJob of Kubeflow Trainer."""
    return elastic(target="trainjob", **fields)


def objects(config: JobConfig, name: str = NAME) -> dict[str, Any]:
    """The rendered objects by role."""
    return dict(render(name, config).objects())


def templates(objects: dict[str, Any]) -> Iterator[Any]:
    """The pod templates of rendered objects: the nodes' and the store's."""
    for manifest in objects.values():
        if manifest["kind"] == "PyTorchJob":
            yield manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        elif manifest["kind"] in {"Job", "Deployment"}:
            yield manifest["spec"]["template"]
        elif manifest["kind"] == "TrainingRuntime":
            yield replicated_job(manifest)["template"]


def replicated_job(runtime: dict[str, Any]) -> dict[str, Any]:
    """The spec of the Job that JobSet makes of a TrainingRuntime."""
    spec: dict[str, Any] = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    return spec


def pod_spec(config: JobConfig) -> dict[str, Any]:
    """The pod's spec in the workload, or in its runtime."""
    pod: dict[str, Any] = _template(config)["spec"]
    return pod


def pod_labels(config: JobConfig) -> dict[str, str]:
    """The labels of a node's pod."""
    labels: dict[str, str] = _template(config)["metadata"]["labels"]
    return labels


def _template(config: JobConfig) -> Any:
    return pod_template(workload_of(render(NAME, config)))


def container(config: JobConfig) -> dict[str, Any]:
    """The training container of the job."""
    (only,) = pod_spec(config)["containers"]
    found: dict[str, Any] = only
    return found


def environment(config: JobConfig) -> dict[str, Any]:
    """The container's variables: name to value, or to the reference."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(config)["env"]}
