"""The variables that the training operator adds to every container of a PyTorchJob. Pure.

Source: https://github.com/kubeflow/trainer/blob/v1.9.4/pkg/controller.v1/pytorch/envvar.go and `elastic.go` beside it;
the cluster tests compare with a real pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DEFAULT_PORT: Final = 23456
"""The port `pytorchjob-port`, where the template does not give it."""
_PORT_NAME: Final = "pytorchjob-port"


def operator_env(job: Mapping[str, Any]) -> dict[str, str]:
    """Name to value, in the operator's order; the same for every node of a worker-only elastic job.

    The variables come after the container's own, so that they win.

    Args:
        job: the PyTorchJob.
    """
    spec = job["spec"]
    policy, replicas = spec["elasticPolicy"], spec["pytorchReplicaSpecs"]["Worker"]["replicas"]
    smallest = policy.get("minReplicas", policy.get("maxReplicas", replicas))
    largest = policy.get("maxReplicas", policy.get("minReplicas", replicas))
    host = policy.get("rdzvHost") or f"{job['metadata']['name']}-worker-0"
    found = {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": spec["nprocPerNode"],
        "PET_RDZV_ENDPOINT": f"{host}:{policy.get('rdzvPort') or _port(spec)}",
        "PET_RDZV_BACKEND": policy.get("rdzvBackend", "c10d"),
        "PET_NNODES": f"{smallest}:{largest}",
        "PET_MAX_RESTARTS": policy.get("maxRestarts"),
        "PET_RDZV_ID": policy.get("rdzvId"),
        "PET_RDZV_CONF": ",".join(f"{entry['key']}={entry['value']}" for entry in policy.get("rdzvConf", ())) or None,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _port(spec: Mapping[str, Any]) -> int:
    containers = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    ports = (port for container in containers for port in container.get("ports", ()))
    return next((port["containerPort"] for port in ports if port.get("name") == _PORT_NAME), DEFAULT_PORT)
