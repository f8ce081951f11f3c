"""The one door: deterministic, pure, and exact about which objects a config asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings

from elastic_infra import JobConfig, render
from elastic_infra.config import ConfigError
from tests import jobs, strategies
from tests.strategies import Data

ROOT: Final = Path(__file__).parents[2]

CASES: Final[Mapping[str, Data]] = {
    "one node": {"image": "i", "script": "t.py", "env": {"B": 1, "A": 2}, "labels": {"b": "1", "a": "2"}},
    "everything": {
        "image": "i",
        "module": "train",
        "env": {"Z": "1", "A": {"secret": "s", "key": "k"}},
        "labels": {"team": "research", "cost": "x"},
        "annotations": {"b": "1", "a": "2"},
        "elastic": {"nnodes": "2:4"},
        "resources": {"cpu": 4, "memory": "8Gi", "gpu": 2},
        "autoscaling": {"metrics": [{"type": "cpu", "target": 80}]},
        "placement": {"node_selector": {"b": "1", "a": "2"}, "tolerations": [{"key": "gpu"}]},
        "disruption": {"pod_disruption_budget": True},
        "storage": {"checkpoint": {"size": "1Gi"}},
    },
}

_PROGRAM: Final = """
import json, sys
from elastic_infra.config import JobConfig
from elastic_infra.manifests import render
loaded = sorted({"pulumi", "torch", "yaml"} & set(sys.modules))
cases = json.load(sys.stdin)
print(json.dumps([loaded, [list(render("job", JobConfig.from_mapping(case)).objects()) for case in cases]]))
"""


def _in_a_fresh_process(seed: str) -> Any:
    program = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(list(CASES.values())),
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return program.stdout


def test_the_bytes_are_the_same_in_every_process() -> None:
    """No order of a set or of a hash reaches a manifest, and rendering loads neither Pulumi nor torch nor YAML."""
    first, second = (_in_a_fresh_process(seed) for seed in ("1", "2"))

    assert first == second
    assert json.loads(first)[0] == []


@settings(max_examples=25)
@given(strategies.JOB_NAMES, strategies.job_configs())
def test_the_bytes_are_the_same_every_time(name: str, data: Data) -> None:
    """Same config, same bytes, and the config is left as it was."""
    config = JobConfig.from_mapping(data)
    before = config.model_dump_json()

    first, second = (json.dumps(jobs.objects(config, name)) for _ in range(2))

    assert first == second
    assert config.model_dump_json() == before


@pytest.mark.parametrize(
    ("config", "roles"),
    [
        (jobs.job(), ["launcher", "network_policy", "workload"]),
        (jobs.job(security={"network_policy": False}), ["launcher", "workload"]),
        (jobs.job(launcher={"delivery": "image"}), ["network_policy", "workload"]),
        (jobs.job(elastic={"nnodes": 2}), ["launcher", "network_policy", "service", "token", "workload"]),
        (jobs.job(target="pytorchjob"), ["launcher", "network_policy", "service", "token", "workload"]),
        (jobs.indexed(), ["launcher", "network_policy", "service", "token", "store", "workload"]),
        (jobs.train_job(), ["launcher", "network_policy", "service", "token", "store", "runtime", "workload"]),
        (jobs.elastic(), ["launcher", "network_policy", "service", "token", "store", "workload"]),
        (
            jobs.elastic(rendezvous={"host": "worker0"}),
            ["launcher", "network_policy", "service", "token", "workload"],
        ),
        (
            jobs.elastic(elastic={"rdzv_backend": "etcd-v2", "rdzv_endpoint": "etcd:2379"}),
            ["launcher", "network_policy", "workload"],
        ),
        (
            JobConfig.from_mapping(CASES["everything"]),
            [
                *("launcher", "checkpoint", "network_policy", "service", "token"),
                *("store", "workload", "autoscaler", "disruption_budget"),
            ],
        ),
        (jobs.job(storage={"checkpoint": {"claim": "mine"}}), ["launcher", "network_policy", "workload"]),
        (
            jobs.indexed(autoscaling={"policy": "capacity"}),
            ["launcher", "network_policy", "service", "token", "account", "role", "role_binding", "store", "workload"],
        ),
        (
            jobs.indexed(placement={"gang": {"scheduler": "volcano"}}),
            ["launcher", "network_policy", "gang", "service", "token", "store", "workload"],
        ),
        (
            jobs.elastic(resources={"cpu": 1}, autoscaling=CASES["everything"]["autoscaling"] | {"owner": "operator"}),
            ["launcher", "network_policy", "service", "token", "store", "workload"],
        ),
    ],
)
def test_a_config_gives_exactly_the_objects_it_asks_for(config: JobConfig, roles: list[str]) -> None:
    """Objects come in the order in which they are needed, and none without a reason."""
    assert list(jobs.objects(config)) == roles


@pytest.mark.parametrize(
    ("nnodes", "target", "kind"),
    [
        (1, "auto", "Job"),
        ("1:1", "auto", "Job"),
        (1, "job", "Job"),
        ("1:2", "job", "Job"),
        (1, "pytorchjob", "PyTorchJob"),
        (2, "auto", "PyTorchJob"),
        ("1:2", "auto", "PyTorchJob"),
    ],
)
def test_one_node_is_a_job_and_more_are_a_pytorchjob(nnodes: int | str, target: str, kind: str) -> None:
    """As Flyte does; `target` overrides."""
    config = jobs.job(elastic={"nnodes": nnodes}, target=target)

    assert jobs.objects(config)["workload"]["kind"] == kind


def test_a_name_that_is_too_long_is_refused() -> None:
    """The limit is that of the last pod's name."""
    with pytest.raises(ConfigError, match=r"name: .*at most 53"):
        render("a" * 54, jobs.job(elastic={"nnodes": "2:11"}))


def test_the_namespace_is_always_explicit() -> None:
    """An object without a namespace would go wherever the kubeconfig of the day points."""
    namespaces = {
        m["metadata"]["namespace"] for m in jobs.objects(JobConfig.from_mapping(CASES["everything"])).values()
    }

    assert namespaces == {"default"}
