"""What restarts a job when it changes, in every shape: as each released version has it, and as this one does.

A version that changes it restarts the jobs of the versions before it, and the tests here keep such a
change from being made by accident.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from elastic_infra import JobConfig
from elastic_infra.manifests.render import lasting
from elastic_infra.manifests.updates import restarting
from tests.golden import assert_golden
from tests.released import NEXT, PODS, PROMISES

JOB: Final = {
    "image": "registry.example.com/train:1",
    "script": "train.py",
    "env": {"DATASET": "/data", "TOKEN": {"secret": "hub", "key": "token"}},
    "elastic": {"nnodes": "2:4"},
    "resources": {"cpu": "2", "memory": "4Gi"},
}
OVERLAY: Final = {
    "spec": {
        "initContainers": [{"name": "fetch", "image": "registry.example.com/fetch:1"}],
        "containers": [{"name": "pytorch", "tty": True}],
    }
}
SHAPES: Final[Mapping[str, dict[str, Any]]] = {
    "range": {},
    "fixed": {"elastic": {"nnodes": 2}},
    "single-pod": {"elastic": {"nnodes": 1}},
    "one-node-pytorchjob": {"elastic": {"nnodes": 1}, "target": "pytorchjob"},
    "indexed-job": {"target": "job"},
    "indexed-job-fixed": {"elastic": {"nnodes": 2}, "target": "job"},
    "train-job": {"target": "trainjob"},
    "checkpoint-claim": {"storage": {"checkpoint": {"claim": "checkpoints"}}},
    "checkpoint-made": {"storage": {"checkpoint": {"size": "10Gi"}}},
    "overlays": {"overlays": {"pod": OVERLAY}},
    "overlays-single-pod": {"overlays": {"pod": OVERLAY}, "elastic": {"nnodes": 1}},
    "gpus": {"resources": {"gpu": 8, "memory": "64Gi"}, "shared_memory": {"size": "16Gi"}},
    "autoscaled": {"autoscaling": {"metrics": [{"type": "cpu", "target": "80"}]}},
    "queued": {"placement": {"queue": "research"}},
    "image-delivery": {"launcher": {"delivery": "image"}},
    "verified": {"launcher": {"verify": True}},
}
"""Shape to keys of the config that differ from `JOB`."""

CHANGED: Final = (
    "Every job of this shape restarts when this version takes it over. Take the change back unless it is worth that; "
    "else say in the changelog that jobs restart once, and in docs/upgrade.md's table of each version whose jobs do."
)


def pod(shape: str) -> str:
    """What restarts the job and its store, as YAML."""
    config = JobConfig.from_mapping({**JOB, **SHAPES[shape]})
    found: Any = restarting(config, lasting("train", config))
    plain = json.loads(json.dumps(dict(zip(("workload", "store"), found, strict=True))))
    return yaml.safe_dump(plain, sort_keys=False, width=120)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_restarts_a_job_changes_knowingly(shape: str) -> None:
    """Each change of it is seen, and the failure says what follows from it."""
    assert_golden(NEXT / f"{shape}.yaml", pod(shape), CHANGED)


def test_the_shapes_are_all_there() -> None:
    """Every kind of workload, and no file of a shape that is gone."""
    kinds = {lasting("train", JobConfig.from_mapping({**JOB, **each})).workload["kind"] for each in SHAPES.values()}

    assert kinds == {"Job", "PyTorchJob", "TrainJob"}
    assert {file.stem for file in NEXT.iterdir()} == set(SHAPES)


def test_each_released_version_has_its_pods() -> None:
    """The folder of a version is written when it is released, and stays as it is."""
    assert {folder.name for folder in PODS.iterdir()} == {NEXT.name, *PROMISES}


@pytest.mark.parametrize("version", PROMISES)
def test_a_version_whose_pods_differ_restarts_jobs_and_says_so(version: str) -> None:
    """The upgrade page's row says `restart once` of each version whose jobs this one would restart."""
    released = {file.stem: file.read_text("utf-8") for file in (PODS / version).iterdir()}
    differing = [shape for shape, text in released.items() if shape in SHAPES and text != pod(shape)]

    assert {"single-pod", "range", "checkpoint-claim"} <= set(released)
    assert not differing or PROMISES[version] == "restart once", f"{', '.join(differing)}: {CHANGED}"
