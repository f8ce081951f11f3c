"""What may end a pod, and whom it runs as."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elastic_infra.config.base import Part
from elastic_infra.config.values import MAX_INT32, InputName, Whole


class Disruption(Part):
    """What may end a pod, and how much time it has then."""

    pod_disruption_budget: bool = False
    """Keep at least `min_nodes` during voluntary disruptions. Off: it can block the drain of a cluster node."""

    safe_to_evict: bool = False
    """Whether autoscalers of cluster nodes may move the pods. False, as Flyte: moving a node costs training time."""

    termination_grace_period_seconds: Annotated[Whole, Field(ge=1, le=86_400)] = 120
    """Seconds from SIGTERM to SIGKILL for a pod: the time to save a checkpoint on preemption."""


class Security(Part):
    """Whom the pods run as."""

    profile: Literal["restricted", "baseline"] = "restricted"
    """Pod Security profile that the pods satisfy. https://kubernetes.io/docs/concepts/security/pod-security-standards/"""

    service_account: InputName | None = None
    """Service account of the pods; its token is not mounted."""

    run_as_user: Annotated[Whole, Field(ge=0, le=MAX_INT32)] = 1000
    """User, group and volume group. Needs no entry in the image's passwd file: HOME and the caches of torch and
    Triton are on a writable volume. 0 only with `baseline`."""

    read_only_root: bool = False
    """Mount the image read-only; /tmp and HOME stay writable."""
