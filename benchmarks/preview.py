"""A preview of many jobs on a real engine: our component beside a hand-written `pulumi_kubernetes` program.

    python -m benchmarks.preview [JOBS] [ROUNDS]     default: 100 jobs, 5 rounds

Both give the engine the same objects; ours adds a component for each job, theirs has them as text already. Each
preview runs in a fresh interpreter, imports of the program included, and the two take turns, so that a busy machine
is as busy for both.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.engine.alone import empty_stack

if TYPE_CHECKING:
    from elastic_infra import ElasticTrainingJobArgs

LIMIT: Final = 1.25
"""How much longer than the hand-written program ours may take."""

ARMS: Final = ("component", "hand-written")


def config(index: int) -> ElasticTrainingJobArgs:
    """One job of many: a range with a dedicated store and an autoscaler."""
    return {
        "image": f"registry.example.com/train:{index}",
        "script": "train.py",
        "env": {"DATASET": {"value": "/data"}, "SEED": {"value": str(index)}},
        "elastic": {"nnodes": "2:4"},
        "resources": {"cpu": "8", "memory": "32Gi", "gpu": {"count": 1}},
        "shared_memory": {"size": "8Gi"},
        "autoscaling": {"metrics": [{"type": "memory", "target": "80"}]},
        "storage": {"checkpoint": {"claim": "checkpoints"}},
    }


def component(jobs: int) -> None:
    """The program that declares the jobs with our component."""
    from elastic_infra import ElasticTrainingJob

    for index in range(jobs):
        ElasticTrainingJob(f"job-{index}", config(index))


def hand_written(objects: list[dict[str, Any]]) -> None:
    """Theirs: the same objects through the typed classes."""
    import pulumi
    from pulumi_kubernetes.apiextensions import CustomResource
    from pulumi_kubernetes.apps.v1 import Deployment
    from pulumi_kubernetes.autoscaling.v2 import HorizontalPodAutoscaler
    from pulumi_kubernetes.core.v1 import ConfigMap, Secret, Service

    for each in objects:
        name, launcher, service, token, store, job, scaler = each.values()
        first = [
            ConfigMap(
                f"{name}-launcher", metadata=launcher["metadata"], immutable=True, binary_data=launcher["binaryData"]
            ),
            Service(f"{name}-service", metadata=service["metadata"], spec=service["spec"]),
            Secret(
                f"{name}-token",
                metadata=token["metadata"],
                data=pulumi.Output.secret(token["data"]),
                opts=pulumi.ResourceOptions(ignore_changes=["data"]),
            ),
            Deployment(f"{name}-store", metadata=store["metadata"], spec=store["spec"]),
        ]
        CustomResource(
            f"{name}-workload",
            api_version=job["apiVersion"],
            kind=job["kind"],
            metadata=job["metadata"],
            spec=job["spec"],
            opts=pulumi.ResourceOptions(
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
        HorizontalPodAutoscaler(f"{name}-autoscaler", metadata=scaler["metadata"], spec=scaler["spec"])


def literals(jobs: int) -> list[dict[str, Any]]:
    """What the hand-written program has as text: every object of every job, by role."""
    from elastic_infra import JobConfig, render

    names = [f"job-{index}" for index in range(jobs)]
    made = [render(name, JobConfig.from_mapping({**config(index)})) for index, name in enumerate(names)]
    return [{"name": name, **dict(manifests.objects())} for name, manifests in zip(names, made, strict=True)]


def seconds_of(program: Callable[[], None]) -> float:
    """One preview on a new, empty stack."""
    with empty_stack() as stack:
        started = time.monotonic()
        outcome = stack.preview(program, suppress_progress=True)
        elapsed = time.monotonic() - started
    if outcome.failed:
        sys.exit(outcome.text)
    return elapsed


def in_fresh_interpreter(arm: str, jobs: int, text: Path) -> float:
    """The seconds of one arm, imports included."""
    command = [sys.executable, "-m", "benchmarks.preview", arm, str(jobs), str(text)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def compare(jobs: int, rounds: int) -> float:
    """Print each round; give the median of ours over theirs, round by round."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "objects.json"
        text.write_text(json.dumps(literals(jobs)))
        for _ in range(rounds):
            ours, theirs = (in_fresh_interpreter(arm, jobs, text) for arm in ARMS)
            ratios.append(ours / theirs)
            print(
                f"{jobs} jobs: component {ours:.2f} s, hand-written {theirs:.2f} s, ratio {ratios[-1]:.2f}", flush=True
            )
    return statistics.median(ratios)


def main(arguments: list[str]) -> int:
    """0 when ours is within the limit."""
    if arguments and arguments[0] in ARMS:
        arm, jobs, text = arguments
        objects = json.loads(Path(text).read_text())
        print(seconds_of((lambda: component(int(jobs))) if arm == ARMS[0] else (lambda: hand_written(objects))))
        return 0
    jobs_, rounds = [*map(int, arguments), *(100, 5)[len(arguments) :]]
    ratio = compare(jobs_, rounds)
    print(f"median ratio {ratio:.2f}, limit {LIMIT}")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
