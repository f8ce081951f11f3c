"""Resources of each node: CPU, memory, devices, shared memory. Request and limit are the same."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import model_validator

from elastic_infra.config.base import Part, Shorthand
from elastic_infra.config.values import Count, DnsLabel, ObjectName, Quantity, ResourceName, quantity

VENDOR_RESOURCES: Final = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/i915",
    "google": "google.com/tpu",
    "neuron": "aws.amazon.com/neuron",
}
"""Vendor to extended resource: https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/,
https://cloud.google.com/kubernetes-engine/docs/concepts/tpus,
https://awsdocs-neuron.readthedocs-hosted.com/en/latest/containers/kubernetes-getting-started.html"""


class Gpu(Part):
    """Accelerators of each node."""

    count: Count
    """Devices a node."""

    vendor: Literal["nvidia", "amd", "intel", "google", "neuron"] = "nvidia"
    """Vendor of the device plugin, which gives the resource's name. `google` are TPUs. `neuron` are the devices of AWS,
    each of which has several cores: set `elastic.nproc_per_node` to the cores of a node. Jobs on these two are
    untried."""

    resource: ResourceName | None = None
    """Extended resource in place of the vendor's, such as `nvidia.com/mig-1g.10gb`."""

    @property
    def resource_name(self) -> str:
        """The extended resource's name."""
        return self.resource or VENDOR_RESOURCES[self.vendor]


def _gpu_count(value: object) -> object:
    return {"count": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class Rdma(Part):
    """Network devices with direct access to memory (InfiniBand, RoCE, EFA)."""

    resource: ResourceName
    """Extended resource of the device plugin, such as `rdma/hca_shared_devices_a` or `vpc.amazonaws.com/efa`."""

    count: Count = 1
    """Devices a node."""


class Hugepages(Part):
    """Memory in large pages, which cluster nodes set aside at their start; EFA needs some."""

    amount: Quantity
    """Memory in such pages a node, a multiple of the page size; it is not part of `memory`."""

    page_size: Literal["2Mi", "1Gi"] = "2Mi"
    """Size of a page. 2Mi is what most clusters have."""

    @model_validator(mode="after")
    def _whole_pages(self) -> Hugepages:
        if quantity(self.amount) % quantity(self.page_size):
            message = f"amount ({self.amount}) must be a multiple of page_size ({self.page_size})."
            raise ValueError(message)
        return self


class ResourceClaim(Part):
    """Devices by Dynamic Resource Allocation: each node gets a claim made of a template."""

    name: DnsLabel
    """Name of the claim in the pod."""

    template: ObjectName
    """A ResourceClaimTemplate in the job's namespace."""


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

    rdma: Rdma | None = None
    """RDMA devices a node. The container gets the capability IPC_LOCK, which no Pod Security profile but `privileged`
    allows: needs `security.profile: baseline`, and a namespace that enforces no profile."""

    hugepages: Hugepages | None = None
    """Large pages a node. Needs `cpu` or `memory` as well."""

    claims: tuple[ResourceClaim, ...] = ()
    """Devices by Dynamic Resource Allocation, which needs Kubernetes 1.34, and for a PyTorchJob the training operator
    1.9. What a claim holds is not known here: set `elastic.nproc_per_node` where a node has several GPUs by a claim,
    and note that budgets of policies do not count them."""


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
