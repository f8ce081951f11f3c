"""The HorizontalPodAutoscaler that the component makes, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.config import ConfigError
from tests import jobs

SLOW = {"nodes": 2, "period_seconds": 1800, "stabilization_window_seconds": 3600}


def _spec(**fields: Any) -> Any:
    scaling = {"metrics": [{"type": "cpu", "target": 80}], **fields}
    return jobs.objects(jobs.elastic(resources={"cpu": 1, "memory": "1Gi"}, autoscaling=scaling))["autoscaler"]["spec"]


def test_the_autoscaler_is_complete() -> None:
    """It targets the scale subresource within the rendezvous range, and shrinks slowly."""
    assert _spec() == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job"},
        "minReplicas": 2,
        "maxReplicas": 4,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }
        ],
        "behavior": {
            "scaleUp": {
                "stabilizationWindowSeconds": 60,
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}],
            },
            "scaleDown": {
                "stabilizationWindowSeconds": 600,
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
            },
        },
    }


@pytest.mark.parametrize(
    ("metric", "rendered"),
    [
        (
            {"type": "memory", "target": "70"},
            {
                "type": "Resource",
                "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}},
            },
        ),
        (
            {"type": "pods", "name": "queue_length", "target": "1500m"},
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "queue_length"},
                    "target": {"type": "AverageValue", "averageValue": "1500m"},
                },
            },
        ),
        (
            {"type": "external", "name": "backlog", "target": 30, "selector": {"queue": "a"}},
            {
                "type": "External",
                "external": {
                    "metric": {"name": "backlog", "selector": {"matchLabels": {"queue": "a"}}},
                    "target": {"type": "AverageValue", "averageValue": "30"},
                },
            },
        ),
    ],
)
def test_each_kind_of_metric(metric: dict[str, Any], rendered: dict[str, Any]) -> None:
    """Per cent of the request for resources, an average value a node for the others."""
    assert _spec(metrics=[metric])["metrics"] == [rendered]


def test_one_direction_can_be_given_alone() -> None:
    """The other keeps its default."""
    behavior = _spec(behavior={"scale_down": SLOW})["behavior"]

    assert behavior["scaleDown"] == {
        "stabilizationWindowSeconds": 3600,
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 1800}],
    }
    assert behavior["scaleUp"] == _spec()["behavior"]["scaleUp"]


@pytest.mark.parametrize(
    ("metric", "path"),
    [
        ({"type": "cpu", "target": "500m"}, "autoscaling.metrics[0]"),
        ({"type": "cpu", "target": 100_000}, "autoscaling.metrics[0]"),
        ({"type": "cpu", "target": 80, "name": "cpu"}, "autoscaling.metrics[0]"),
        ({"type": "cpu", "target": 80, "selector": {"a": "b"}}, "autoscaling.metrics[0]"),
        ({"type": "pods", "target": 1}, "autoscaling.metrics[0]"),
        ({"type": "pods", "target": 0, "name": "q"}, "autoscaling.metrics[0].target"),
        ({"type": "pods", "target": 1, "name": "a/b"}, "autoscaling.metrics[0].name"),
        ({"type": "object", "target": 1}, "autoscaling.metrics[0].type"),
    ],
)
def test_a_metric_that_kubernetes_would_refuse_is_refused(metric: dict[str, Any], path: str) -> None:
    """Before it reaches a cluster."""
    with pytest.raises(ConfigError) as caught:
        _spec(metrics=[metric])

    assert [fault.path for fault in caught.value.faults] == [path]


@pytest.mark.parametrize(("unit", "nodes", "value"), [(1, 3, 3), (2, 3, 4), (4, 1, 4), (4, 8, 8)])
def test_policies_add_whole_units(unit: int, nodes: int, value: int) -> None:
    """A part of a unit would only wait, and a policy of no node would never act."""
    rules = {"nodes": nodes, "period_seconds": 60, "stabilization_window_seconds": 0}
    job = jobs.job(
        elastic={"nnodes": "4:8", "initial_nodes": 4, "node_unit": unit},
        autoscaling={
            "metrics": [{"type": "pods", "name": "q", "target": 1}],
            "behavior": {"scale_up": rules, "scale_down": rules},
        },
    )
    behavior = jobs.objects(job)["autoscaler"]["spec"]["behavior"]

    assert [behavior[way]["policies"][0]["value"] for way in ("scaleUp", "scaleDown")] == [value, value]
