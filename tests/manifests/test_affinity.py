"""The cluster nodes to which the pods of a job are drawn."""

from __future__ import annotations

from typing import Any

import pytest

from tests import jobs

PACK = {"topology_key": "topology.kubernetes.io/zone"}
OWN = {"app.kubernetes.io/instance": "job", "app.kubernetes.io/component": "worker"}
TERM = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": OWN}}
SPOT = [
    {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    for key, value in (
        ("cloud.google.com/gke-spot", "true"),
        ("eks.amazonaws.com/capacityType", "SPOT"),
        ("karpenter.sh/capacity-type", "spot"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
    )
]
TOLERATED = [
    {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
    {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"},
]


def _nodes(config: Any) -> list[Any]:
    """Templates of the pods that train."""
    found = jobs.templates(jobs.objects(config))
    return [each for each in found if each["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"]


@pytest.mark.parametrize(
    ("placement", "affinity"),
    [
        ({}, None),
        ({"spot": "allowed"}, None),
        (
            {"spot": "preferred"},
            {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "preference": term} for term in SPOT
                    ]
                }
            },
        ),
        (
            {"spot": "required"},
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": SPOT}}},
        ),
        (
            {"topology_pack": PACK},
            {
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": TERM}]
                }
            },
        ),
        (
            {"topology_pack": {**PACK, "required": True}, "affinity": {"podAntiAffinity": {"a": 1}}},
            {
                "podAntiAffinity": {"a": 1},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
            },
        ),
    ],
)
@pytest.mark.parametrize("make", [jobs.elastic, jobs.indexed, jobs.train_job])
def test_short_fields_become_an_affinity(make: Any, placement: dict[str, Any], affinity: Any) -> None:
    """The labels that a pod is drawn to are those that the job's own pods have."""
    config = make(placement=placement)
    (labels,) = (template["metadata"]["labels"] for template in _nodes(config))

    assert jobs.pod_spec(config).get("affinity") == affinity
    assert OWN.items() <= labels.items()


@pytest.mark.parametrize("spot", ["allowed", "preferred", "required"])
def test_spot_nodes_are_tolerated_by_the_pods_that_train(spot: str) -> None:
    """The store's pod stays where nothing is taken away."""
    config = jobs.elastic(placement={"spot": spot, "tolerations": [{"key": "gpu"}]})
    store = jobs.objects(config)["store"]["spec"]["template"]["spec"]

    assert jobs.pod_spec(config)["tolerations"][2:4] == TOLERATED
    assert jobs.pod_spec(config)["tolerations"][4]["key"] == "gpu"
    assert not any("spot" in str(each) for each in store["tolerations"])


@pytest.mark.parametrize("word", ["preferred", "required"])
@pytest.mark.parametrize("make", [jobs.elastic, jobs.indexed, jobs.train_job])
def test_in_a_queue_kueue_packs_the_pods(make: Any, word: str) -> None:
    """The wish is an annotation of the pods, and no affinity, for Kueue chooses the cluster nodes."""
    config = make(placement={"queue": "research", "topology_pack": {**PACK, "required": word == "required"}})
    (annotations,) = (template["metadata"]["annotations"] for template in _nodes(config))

    assert {key: value for key, value in annotations.items() if "topology" in key} == {
        f"kueue.x-k8s.io/podset-{word}-topology": "topology.kubernetes.io/zone"
    }
    assert "affinity" not in jobs.pod_spec(config)
