"""The one Service of a job: a stable name in front of the rendezvous store."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames, host_name
from elastic_infra.manifests.metadata import metadata, node_index_label, node_selector, store_selector
from elastic_infra.manifests.model import Manifest, Value


def service_name(name: str, config: JobConfig) -> str:
    """The Service's name.

    Where the first index of a Job has the store, the name is its host name, by which it knows that it has: the Job
    controller makes no Service for it, as the operator does.
    """
    is_of_a_node = config.has_indices and config.rendezvous_host == "worker0"
    return host_name(name, config, 0) if is_of_a_node else ObjectNames(name).rendezvous


def rendezvous_service(name: str, config: JobConfig) -> Manifest:
    """A headless Service, resolvable before readiness, since nodes look the store up while all pods start."""
    dedicated = config.rendezvous_host == "dedicated"
    first_node = {**node_selector(name, config), node_index_label(config): "0"}
    ports: list[Value] = [_port("rendezvous", config.rendezvous.port)]
    if config.launcher.metrics_port is not None and not dedicated:
        ports.append(_port("status", config.launcher.metrics_port))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, service_name(name, config), config),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(store_selector(name) if dedicated else first_node),
            "ports": ports,
        },
    }


def _port(name: str, port: int) -> dict[str, Value]:
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
