"""Resources of each node: CPU, memory, devices, shared memory. Request and limit are the same."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from elastic_infra.config.base import Part, Shorthand
from elastic_infra.config.values import Count, Quantity, ResourceName

VENDOR_RESOURCES: Final = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/i915",
}
"""Vendor to extended resource: https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/"""


class Gpu(Part):
    """Accelerators of each node."""

    count: Count
    """Devices a node."""

    vendor: Literal["nvidia", "amd", "intel"] = "nvidia"
    """Vendor of the device plugin, which gives the resource's name."""

    resource: ResourceName | None = None
    """Extended resource in place of the vendor's, such as `nvidia.com/mig-1g.10gb`."""

    @property
    def resource_name(self) -> str:
        """The extended resource's name."""
        return self.resource or VENDOR_RESOURCES[self.vendor]


def _gpu_count(value: object) -> object:
    return {"count": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class Resources(Part):
    """Request and limit of the training container (equal, so that no node is evicted for exceeding its request)."""

    cpu: Quantity | None = None
    """CPUs a node. Needed by a `cpu` metric."""

    memory: Quantity | None = None
    """Memory a node, shared memory included: bytes written to /dev/shm count."""

    ephemeral_storage: Quantity | None = None
    """Local disk a node."""

    gpu: Annotated[Gpu, Shorthand(_gpu_count, {"type": "integer", "minimum": 1})] | None = None
    """Accelerators a node; a plain number means that many NVIDIA GPUs."""


class SharedMemory(Part):
    """The volume at /dev/shm, which data loaders and NCCL use; without a volume a container has 64 MiB."""

    enabled: bool = True
    """Mount a memory-backed volume; `true` or `false` in place of the mapping means this."""

    size: Quantity | None = None
    """The volume's limit; writing beyond it gives ENOSPC. Unset: the kubelet bounds it by the memory limit, as Flyte
    does."""


def _switch(value: object) -> object:
    return {"enabled": value} if isinstance(value, bool) else value


SharedMemoryField = Annotated[SharedMemory, Shorthand(_switch, {"type": "boolean"})]
