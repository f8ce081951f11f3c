"""The autoscaler of the number of nodes, and its metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from elastic_infra.config.base import Part
from elastic_infra.config.values import LabelKey, LabelValue, MetricName, Quantity, Seconds, Whole


class Metric(Part):
    """One metric that the autoscaler follows."""

    type: Literal["cpu", "memory", "pods", "external"]
    """`cpu` and `memory`: per cent of the request; `pods`: a metric of the pods; `external`: one from outside."""

    target: Quantity
    """Per cent for `cpu` and `memory` (a whole number); the average value a node for the others (a quantity)."""

    name: MetricName | None = None
    """The metric's name; for `pods` and `external`."""

    selector: dict[LabelKey, LabelValue] = {}
    """Labels that pick the series; for `pods` and `external`."""

    @model_validator(mode="after")
    def _fits_its_type(self) -> Metric:
        named = self.type in {"pods", "external"}
        if named != (self.name is not None):
            message = f"a metric of type {self.type!r} {'needs a name' if named else 'takes no name'}."
            raise ValueError(message)
        if not named and self.selector:
            message = f"a metric of type {self.type!r} takes no selector."
            raise ValueError(message)
        if not named and not (self.target.isdecimal() and len(self.target) <= 5):  # noqa: PLR2004 - fits an int32
            message = f"the target of a {self.type!r} metric is a whole number of per cent of the request."
            raise ValueError(message)
        return self


class ScalingRules(Part):
    """The speed limits of one direction."""

    nodes: Annotated[Whole, Field(ge=1, le=10_000)]
    """At most this many nodes in each period."""

    period_seconds: Annotated[Whole, Field(ge=1, le=1800)]
    """Length of a period in seconds (Kubernetes allows up to 1800)."""

    stabilization_window_seconds: Annotated[Whole, Field(ge=0, le=3600)]
    """Seconds over which the strongest recommendation holds (Kubernetes allows up to 3600)."""


class Behavior(Part):
    """Speed limits. Every change of size costs training time, so shrinking is slow by default."""

    scale_up: ScalingRules = ScalingRules(nodes=4, period_seconds=60, stabilization_window_seconds=60)
    """Limits for adding nodes. Default: 4 nodes a minute, after a minute of need; the launcher admits newcomers in
    batches of 30 s."""

    scale_down: ScalingRules = ScalingRules(nodes=1, period_seconds=300, stabilization_window_seconds=600)
    """Limits for removing nodes. Default: one node in 5 minutes, after 10 minutes without need, since each removal
    costs training time."""


class Autoscaling(Part):
    """What moves the number of nodes; its bounds come from `elastic.nnodes`."""

    policy: Literal["metrics", "capacity"] = "metrics"
    """`metrics`: a HorizontalPodAutoscaler follows `metrics`. `capacity`: the job grows while the cluster has room for
    one more pod, and gives a node up to a pod of its namespace that waits for room and has no lower priority. A
    container in the store's pod does so, with a token and a Role of its own."""

    probe_seconds: Seconds | None = None
    """Seconds that an added pod may wait for a place before it is taken back (only with `policy: capacity`; 60 by
    default). The job waits twice as long before it asks again, then longer each time, up to 32 times. Longer where an
    autoscaler of cluster nodes shall have the time to add one."""

    owner: Literal["component", "operator"] = "component"
    """The autoscaler's maker. `component`: an HPA made by this package, with `behavior`. `operator`: the training
    operator makes it from `elasticPolicy.metrics`. Never both: two autoscalers on one job stop each other."""

    metrics: Annotated[tuple[Metric, ...], Field(max_length=16)] = ()
    """Metrics to follow; the largest recommendation wins. At least one with `policy: metrics`, none with `capacity`."""

    behavior: Behavior | None = None
    """Speed limits (only with `owner: component`; the operator's autoscaler has none)."""
