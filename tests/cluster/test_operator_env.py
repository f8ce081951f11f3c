"""A node that runs on a laptop is told what the operator tells a pod."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.local.operator_env import operator_env
from tests.cluster import jobs
from tests.cluster.cluster import Namespace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
SHAPES: dict[str, dict[str, Any]] = {
    "worker0": {"rendezvous": {"host": "worker0"}},
    "dedicated": {"rendezvous": {"host": "dedicated", "port": 4000}},
    "fixed": {"elastic": {"nnodes": 2, "nproc_per_node": 2, "max_restarts": 0}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_operator_adds_what_we_compute(shared_space: Namespace, shape: str) -> None:
    """After the template's own variables a real pod has exactly those of `operator_env`, in its order."""
    name = f"env-{shape}"
    small = {"resources": {"cpu": "50m", "memory": "200Mi"}}
    settings = jobs.config(shared_space, jobs.Training(), **small, **SHAPES[shape])
    jobs.submit(shared_space, name, settings, "idle")
    try:
        pods = shared_space.await_running(name, 2)
        job = shared_space.api.get(shared_space.job(name))
    finally:
        for manifest in jobs.objects(name, settings, "idle"):
            shared_space.api.delete(manifest)
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    expected = list(operator_env(job).items())
    for pod in pods:
        env = pod["spec"]["containers"][0]["env"]
        assert [(entry["name"], entry["value"]) for entry in env[len(template["env"]) :]] == expected
