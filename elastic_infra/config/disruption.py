"""What may end a pod, and how much time it has then."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from elastic_infra.config.base import Part
from elastic_infra.config.values import Whole


class Disruption(Part):
    """What may end a pod, and how much time it has then."""

    pod_disruption_budget: bool = False
    """Keep at least `min_nodes` during voluntary disruptions. Off: it can block the drain of a cluster node."""

    safe_to_evict: bool = False
    """Whether autoscalers of cluster nodes may move the pods. False, as Flyte: moving a node costs training time."""

    termination_grace_period_seconds: Annotated[Whole, Field(ge=1, le=86_400)] = 120
    """Seconds from SIGTERM to SIGKILL for a pod: the time to save a checkpoint on preemption."""
