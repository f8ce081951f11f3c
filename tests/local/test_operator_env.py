"""What the operator would add to a pod, as it was seen in real pods."""

from __future__ import annotations

import copy
from typing import Any

from elastic_infra.local.operator_env import operator_env

JOB: dict[str, Any] = {
    "metadata": {"name": "demo"},
    "spec": {
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d", "maxRestarts": 3},
        "nprocPerNode": "2",
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}},
    },
}


def changed(policy: dict[str, Any]) -> dict[str, Any]:
    """The job with more in its elastic policy."""
    job = copy.deepcopy(JOB)
    job["spec"]["elasticPolicy"].update(policy)
    return job


def test_worker_only_elastic_job() -> None:
    """These and no others: no rank, no master, no world size."""
    assert operator_env(JOB) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_ENDPOINT": "demo-worker-0:23456",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "1:4",
        "PET_MAX_RESTARTS": "3",
    }


def test_rendezvous_of_our_own() -> None:
    """Host, port, id and settings are passed on as given."""
    conf = [{"key": "is_host", "value": "false"}, {"key": "timeout", "value": "900"}]
    policy = {"rdzvHost": "demo-rdzv", "rdzvPort": 29400, "rdzvId": "demo-1", "rdzvConf": conf}
    found = operator_env(changed(policy))
    assert found["PET_RDZV_ENDPOINT"] == "demo-rdzv:29400"
    assert found["PET_RDZV_ID"] == "demo-1"
    assert found["PET_RDZV_CONF"] == "is_host=false,timeout=900"


def test_port_of_the_template() -> None:
    """A port of the operator's name stands in for a missing rendezvous port."""
    job = copy.deepcopy(JOB)
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"name": "status", "containerPort": 1}, {"name": "pytorchjob-port", "containerPort": 4000}]
    assert operator_env(job)["PET_RDZV_ENDPOINT"] == "demo-worker-0:4000"


def test_one_bound_stands_for_the_other() -> None:
    """The operator fills a missing bound from the other one."""
    job = changed({})
    del job["spec"]["elasticPolicy"]["minReplicas"]
    assert operator_env(job)["PET_NNODES"] == "4:4"
