"""Which cluster nodes the pods of a job are drawn to, those of one domain and spot nodes, and which they avoid."""

from __future__ import annotations

from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.placement import SPOT_LABELS, SPOT_TAINTS
from elastic_infra.config.rules import TOPOLOGY_REQUESTS
from elastic_infra.manifests.metadata import AVOID, COMPONENT, INSTANCE
from elastic_infra.manifests.model import Value

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
WEIGHT: Final = 100
"""The most that a preference can have: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/"""


def affinity(name: str, config: JobConfig) -> dict[str, Value]:
    """The affinity of the pods: that of the config as it is, and what shorter fields of the config mean."""
    placement = config.placement
    given = placement.affinity.model_dump(exclude_none=True) if placement.affinity else {}
    return {**given, **_spot(config), **_pack(name, config), **_avoidance(name, config)}


def _spot(config: JobConfig) -> dict[str, Value]:
    """A rule for spot nodes of every maker: each has its own label, and one of them is enough."""
    terms: list[Value] = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in SPOT_LABELS.items()
    ]
    if config.placement.spot == "required":
        return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    if config.placement.spot == "preferred":
        return {"nodeAffinity": {PREFERRED: [{"weight": WEIGHT, "preference": term} for term in terms]}}
    return {}


def spot_tolerations(config: JobConfig) -> list[Value]:
    """What lets pods run on spot nodes."""
    return [
        {"key": key, "operator": "Equal", "value": SPOT_LABELS[key], "effect": "NoSchedule"}
        for key in (SPOT_TAINTS if config.placement.spot else ())
    ]


def _pack(name: str, config: JobConfig) -> dict[str, Value]:
    """A rule that draws pods to those of their job; the scheduler lets the first one go anywhere."""
    pack = config.placement.topology_pack
    if pack is None or config.placement.queue is not None:
        return {}
    own: dict[str, Value] = {INSTANCE: name, COMPONENT: "worker"}
    term: Value = {"topologyKey": pack.topology_key, "labelSelector": {"matchLabels": own}}
    return {
        "podAffinity": {REQUIRED: [term]}
        if pack.required
        else {PREFERRED: [{"weight": WEIGHT, "podAffinityTerm": term}]}
    }


def _avoidance(name: str, config: JobConfig) -> dict[str, Value]:
    """A rule that keeps pods off a cluster node on which the driver has put a pod for that."""
    if not config.placement.avoid_bad_nodes:
        return {}
    term: Value = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {AVOID: name}}}
    return {"podAntiAffinity": {REQUIRED: [term]}}


def topology_request(config: JobConfig) -> dict[str, Value]:
    """What asks Kueue, which chooses the cluster nodes of a job in a queue, to pack the pods."""
    pack = config.placement.topology_pack
    if pack is None or config.placement.queue is None:
        return {}
    required, preferred = TOPOLOGY_REQUESTS
    return {required if pack.required else preferred: pack.topology_key}
