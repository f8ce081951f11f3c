"""The NetworkPolicy: the token closes the store, and nothing but the network closes the ports at which workers meet."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests.metadata import INSTANCE, MANAGED_BY, metadata
from elastic_infra.manifests.model import Manifest, Value


def network_policy(name: str, config: JobConfig) -> Manifest:
    """Lets in the nodes and the store of the job, and anyone on the status port, such as a scraper of metrics.

    Source: https://kubernetes.io/docs/concepts/services-networking/network-policies/
    """
    allowed: list[Value] = [{"from": [{"podSelector": _pods(name)}]}]
    if config.launcher.metrics_port is not None:
        allowed.append({"ports": [{"port": config.launcher.metrics_port, "protocol": "TCP"}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, ObjectNames(name).network_policy, config),
        "spec": {"podSelector": _pods(name), "policyTypes": ["Ingress"], "ingress": allowed},
    }


def _pods(name: str) -> Value:
    return {"matchLabels": {INSTANCE: name, MANAGED_BY: "elastic-infra"}}
