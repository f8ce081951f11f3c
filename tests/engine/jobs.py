"""Programs with one job, and the config that they vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pulumi

from elastic_infra import ElasticTrainingJob
from tests.engine.engine import Program

Options = Callable[[], pulumi.ResourceOptions]

JOB: Final[dict[str, Any]] = {
    "image": "registry.example.com/train:1",
    "script": "train.py",
    "env": {"DATASET": "/data", "SEED": "7"},
    "elastic": {"nnodes": "2:4"},
    "resources": {"cpu": "2", "memory": "4Gi"},
    "storage": {"checkpoint": {"claim": "checkpoints"}},
}
"""A range with a dedicated store, so that every kind of child but the optional ones is there."""

AUTOSCALED: Final = {"autoscaling": {"metrics": [{"type": "cpu", "target": "80"}]}}

FULL: Final[dict[str, Any]] = {
    **AUTOSCALED,
    "storage": {"checkpoint": {"size": "10Gi"}},
    "disruption": {"pod_disruption_budget": True},
}
"""Every kind of child."""

WORKLOAD: Final = "train-workload"
CONTAINER: Final = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"


def job(name: str = "train", options: Options | None = None, /, **changes: Any) -> Program:
    """A program that declares one job: `JOB` with these keys changed.

    Args:
        options: makes the component's options inside the program, where resources and Outputs belong.
        changes: keys of the config; a callable is called inside the program, for Outputs.
    """

    def program() -> None:
        late = {key: value() if callable(value) else value for key, value in changes.items()}
        config: Any = {**JOB, **late}
        ElasticTrainingJob(name, config, options() if options else None)

    return program
