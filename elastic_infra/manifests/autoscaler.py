"""Autoscaling: this package's HorizontalPodAutoscaler, or the metrics for the operator's one. Never both."""

from __future__ import annotations

import math

from elastic_infra.config import Autoscaling, Behavior, JobConfig, Metric, ScalingRules
from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest, Value, without_none


def horizontal_pod_autoscaler(name: str, config: JobConfig, autoscaling: Autoscaling) -> Manifest:
    """An autoscaling/v2 HPA on the job's scale subresource; its bounds are those of the rendezvous."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(name, ObjectNames(name).autoscaler, config),
        "spec": {
            "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name},
            "minReplicas": config.elastic.min_nodes,
            "maxReplicas": config.elastic.max_nodes,
            "metrics": metrics(autoscaling),
            "behavior": _behavior(autoscaling.behavior or Behavior(), config.elastic.node_unit),
        },
    }


def metrics(autoscaling: Autoscaling) -> list[Value]:
    """The metrics as autoscaling/v2 MetricSpecs."""
    return [_metric(metric) for metric in autoscaling.metrics]


def _metric(metric: Metric) -> Value:
    if metric.type in {"cpu", "memory"}:
        target: Value = {"type": "Utilization", "averageUtilization": int(metric.target)}
        return {"type": "Resource", "resource": {"name": metric.type, "target": target}}
    selector: Value = {"matchLabels": dict(metric.selector)} if metric.selector else None
    body: Value = {
        "metric": without_none(name=metric.name, selector=selector),
        "target": {"type": "AverageValue", "averageValue": metric.target},
    }
    return {"type": "Pods", "pods": body} if metric.type == "pods" else {"type": "External", "external": body}


def _behavior(behavior: Behavior, unit: int) -> Value:
    return {"scaleUp": _rules(behavior.scale_up, unit), "scaleDown": _rules(behavior.scale_down, unit)}


def _rules(rules: ScalingRules, unit: int) -> Value:
    """The limits in whole units, since a part of a unit would only wait; rounded up, so that none is zero."""
    nodes = math.ceil(rules.nodes / unit) * unit
    return {
        "stabilizationWindowSeconds": rules.stabilization_window_seconds,
        "policies": [{"type": "Pods", "value": nodes, "periodSeconds": rules.period_seconds}],
    }
