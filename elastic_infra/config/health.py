"""What is checked of a cluster node before a pod trains there."""

from __future__ import annotations

from typing import Annotated

from elastic_infra.config.base import Part, Shorthand
from elastic_infra.config.values import Quantity, Seconds


class HealthCheck(Part):
    """A look at the cluster node by an init container; where the node is not fit, the pod is made anew."""

    gpus: bool = True
    """Compare the number of GPUs that torch can use with `resources.gpu.count`, and compute on each of them. NVIDIA,
    AMD and Intel, without a `resource` of one's own; needs torch in the image."""

    nccl: bool = True
    """Add up 16 MiB over all GPUs of the node by NCCL (RCCL), which finds a broken link between them. NVIDIA and AMD,
    with two GPUs or more. It costs the seconds that NCCL needs to start."""

    disk: Quantity | None = None
    """Least free space of the checkpoint volume, and of the cluster node's disk behind HOME. Both are written to in any
    case, so a volume that refuses writes is found."""

    timeout_seconds: Seconds = 300
    """Seconds for the whole check: a driver or a file system that hangs is a fault of the node. 300, because the first
    import of torch out of a fresh image takes long."""


def _switch(value: object) -> object:
    return ({} if value else None) if isinstance(value, bool) else value


HealthCheckField = Annotated[HealthCheck | None, Shorthand(_switch, {"type": "boolean"})]
