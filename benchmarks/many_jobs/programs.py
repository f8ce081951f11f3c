"""Programs that declare the same jobs: our component, hand-written ones with and without a component, and YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    import pulumi

    from elastic_infra import ElasticTrainingJobArgs

IN_PULUMI_RUN: Final = "component in `pulumi.run`"
"""Ours in a function that the SDK awaits and that lets it begin before it waits for all: docs/scale.md has it."""

Objects = Mapping[str, Mapping[str, Any]]
"""The objects of one job, by role."""

LAUNCHER: Final = "team-launcher-0123456789-abcdef"
"""A ConfigMap of another stack, as docs/upgrade.md advises for many jobs: no arm declares a launcher."""


def config(index: int) -> ElasticTrainingJobArgs:
    """One job of many: a range with a dedicated store and an autoscaler.

    Nothing in it causes a warning, since each one is a call to the engine.
    """
    return {
        "image": f"registry.example.com/train:{index}",
        "script": "train.py",
        "env": {"DATASET": {"value": "/data"}, "SEED": {"value": str(index)}},
        "elastic": {"nnodes": "2:4"},
        "resources": {"cpu": "8", "memory": "32Gi", "gpu": {"count": 1}},
        "shared_memory": {"size": "8Gi"},
        "autoscaling": {"metrics": [{"type": "pods", "name": "queued_samples", "target": "100"}]},
        "storage": {"checkpoint": {"claim": "checkpoints"}},
        "launcher": {"config_map": LAUNCHER},
    }


def rendered(jobs: int) -> dict[str, Objects]:
    """What the other programs have as text: every object of every job, by the job's name."""
    from elastic_infra import JobConfig, render

    names = [f"job-{index}" for index in range(jobs)]
    made = {name: render(name, JobConfig.from_mapping({**config(index)})) for index, name in enumerate(names)}
    return {name: dict(manifests.objects()) for name, manifests in made.items()}


def component(jobs: Mapping[str, Objects]) -> None:
    """The jobs through the component of this package."""
    from elastic_infra import ElasticTrainingJob

    for index, name in enumerate(jobs):
        ElasticTrainingJob(name, config(index))


def hand_written(jobs: Mapping[str, Objects]) -> None:
    """The same objects through Pulumi's typed classes, with the options that they need."""
    for name, objects in jobs.items():
        declare(name, objects)


def hand_written_component(jobs: Mapping[str, Objects]) -> None:
    """The same in a component for each job, as a repository has it that declares more than one."""
    import pulumi

    class Job(pulumi.ComponentResource):
        def __init__(self, name: str, objects: Objects) -> None:
            super().__init__("infra:index:Job", name)
            declare(name, objects, self)
            self.register_outputs({})

    for name, objects in jobs.items():
        Job(name, objects)


def declare(name: str, objects: Objects, parent: pulumi.Resource | None = None) -> None:
    """One job through Pulumi's typed classes."""
    import pulumi
    from pulumi_kubernetes.apiextensions import CustomResource
    from pulumi_kubernetes.apps.v1 import Deployment
    from pulumi_kubernetes.autoscaling.v2 import HorizontalPodAutoscaler
    from pulumi_kubernetes.core.v1 import Secret, Service
    from pulumi_kubernetes.networking.v1 import NetworkPolicy

    policy, service, token, store, job, scaler = objects.values()
    plain = pulumi.ResourceOptions(parent=parent)
    first = [
        NetworkPolicy(f"{name}-policy", metadata=policy["metadata"], spec=policy["spec"], opts=plain),
        Service(f"{name}-service", metadata=service["metadata"], spec=service["spec"], opts=plain),
        Secret(
            f"{name}-token",
            metadata=token["metadata"],
            data=pulumi.Output.secret(token["data"]),
            opts=pulumi.ResourceOptions(parent=parent, ignore_changes=["data"]),
        ),
        Deployment(f"{name}-store", metadata=store["metadata"], spec=store["spec"], opts=plain),
    ]
    CustomResource(
        f"{name}-workload",
        api_version=job["apiVersion"],
        kind=job["kind"],
        metadata=job["metadata"],
        spec=job["spec"],
        opts=pulumi.ResourceOptions(
            parent=parent,
            delete_before_replace=True,
            depends_on=first,
            ignore_changes=["spec.pytorchReplicaSpecs.Worker.replicas"],
            replace_on_changes=[
                "spec.elasticPolicy",
                "spec.nprocPerNode",
                "spec.pytorchReplicaSpecs.Worker.template",
            ],
        ),
    )
    HorizontalPodAutoscaler(f"{name}-autoscaler", metadata=scaler["metadata"], spec=scaler["spec"], opts=plain)


def hand_written_component_with_a_record(jobs: Mapping[str, Objects]) -> None:
    """The same with a record in each component, as ours has one, which nothing reads: two resources without logic."""
    import pulumi

    class Job(pulumi.ComponentResource):
        def __init__(self, name: str, objects: Objects) -> None:
            super().__init__("infra:index:Job", name)
            pulumi.Stash(f"{name}-record", input=LAUNCHER, opts=pulumi.ResourceOptions(parent=self))
            declare(name, objects, self)
            self.register_outputs({})

    for name, objects in jobs.items():
        Job(name, objects)


def config_group(jobs: Mapping[str, Objects]) -> None:
    """The same objects as YAML documents, a `ConfigGroup` for each job."""
    from pulumi_kubernetes.yaml import ConfigGroup

    for name, objects in jobs.items():
        ConfigGroup(name, yaml=[yaml.safe_dump(dict(each)) for each in objects.values()])


PROGRAMS: Final[Mapping[str, Callable[[Mapping[str, Objects]], None]]] = {
    "hand-written": hand_written,
    "hand-written component": hand_written_component,
    "hand-written component with a record": hand_written_component_with_a_record,
    "component": component,
    IN_PULUMI_RUN: component,
    "ConfigGroup": config_group,
}
