"""The PodDisruptionBudget: keeps enough nodes for the rendezvous during voluntary disruptions."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests.metadata import metadata, node_selector
from elastic_infra.manifests.model import Manifest


def pod_disruption_budget(name: str, config: JobConfig) -> Manifest:
    """At least `min_nodes` of the job's nodes stay."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(name, ObjectNames(name).disruption_budget, config),
        "spec": {
            "minAvailable": config.elastic.min_nodes,
            "selector": {"matchLabels": dict(node_selector(name, config))},
        },
    }
