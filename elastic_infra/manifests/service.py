"""The one Service of a job: a stable name in front of the rendezvous store."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests.metadata import first_node_selector, metadata, store_selector
from elastic_infra.manifests.model import Manifest, Value


def rendezvous_service(name: str, config: JobConfig) -> Manifest:
    """A headless Service, resolvable before readiness, since nodes look the store up while all pods start."""
    dedicated = config.rendezvous_host == "dedicated"
    ports: list[Value] = [_port("rendezvous", config.rendezvous.port)]
    if config.launcher.metrics_port is not None and not dedicated:
        ports.append(_port("status", config.launcher.metrics_port))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, ObjectNames(name).rendezvous, config),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(store_selector(name) if dedicated else first_node_selector(name)),
            "ports": ports,
        },
    }


def _port(name: str, port: int) -> dict[str, Value]:
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
