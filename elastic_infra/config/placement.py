"""Where pods are scheduled: queue, priority, selectors, tolerations, spread."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from elastic_infra.config.base import Part
from elastic_infra.config.values import MAX_INT32, LabelKey, LabelValue, ObjectName, Whole


class Toleration(Part):
    """A taint that pods accept."""

    key: LabelKey | None = None
    """The taint's key; unset (with `Exists`) tolerates every taint."""

    operator: Literal["Exists", "Equal"] = "Exists"
    """`Equal` compares `value`."""

    value: LabelValue | None = None
    """The taint's value, for `Equal`."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The tolerated effect; unset means all."""

    toleration_seconds: Annotated[Whole, Field(ge=0, le=MAX_INT32)] | None = None
    """Seconds for which a `NoExecute` taint is tolerated."""

    @model_validator(mode="after")
    def _agrees(self) -> Toleration:
        if self.operator == "Exists" and self.value is not None:
            message = "operator 'Exists' takes no value; use operator 'Equal'."
            raise ValueError(message)
        if self.operator == "Equal" and self.key is None:
            message = "operator 'Equal' needs a key."
            raise ValueError(message)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            message = "toleration_seconds needs effect 'NoExecute'."
            raise ValueError(message)
        return self


class TopologySpread(Part):
    """Spread pods over a topology (training usually packs; use it for availability)."""

    topology_key: LabelKey
    """Label of cluster nodes that names the domain, such as `topology.kubernetes.io/zone`."""

    max_skew: Annotated[Whole, Field(ge=1, le=10_000)] = 1
    """Largest difference of pods between domains."""

    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    """Whether a pod waits or starts anyway when the spread cannot be met."""


class Affinity(Part):
    """Affinity rules, verbatim as Kubernetes spells them (camelCase); the API server checks the content."""

    nodeAffinity: dict[str, JsonValue] | None = None  # noqa: N815 - Kubernetes' own key
    """Rules on cluster nodes."""

    podAffinity: dict[str, JsonValue] | None = None  # noqa: N815 - Kubernetes' own key
    """Rules that attract pods to each other."""

    podAntiAffinity: dict[str, JsonValue] | None = None  # noqa: N815 - Kubernetes' own key
    """Rules that keep pods apart."""


class Placement(Part):
    """Scheduling of the job's pods."""

    queue: Annotated[LabelValue, Field(min_length=1)] | None = None
    """Kueue queue: sets the label `kueue.x-k8s.io/queue-name`. Excludes autoscaling: Kueue stops a job that resizes."""

    priority_class: ObjectName | None = None
    """Priority class of the pods."""

    node_selector: dict[LabelKey, LabelValue] = {}
    """Labels that a cluster node must have."""

    tolerations: tuple[Toleration, ...] = ()
    """Taints that pods accept, besides 60 s for a cluster node that is not ready (Kubernetes' own is 300 s)."""

    topology_spread: tuple[TopologySpread, ...] = ()
    """Spread over zones or hosts."""

    affinity: Affinity | None = None
    """Affinity rules, verbatim."""

    scheduler_name: ObjectName | None = None
    """Scheduler in place of the default one."""
