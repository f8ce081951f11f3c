"""The result of rendering: plain Kubernetes objects, one in each field, in the order in which they are applied."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from elastic_infra.config.values import Late

Value: TypeAlias = "bool | int | float | str | Late | Mapping[str, Value] | list[Value] | None"
"""JSON, with late strings (`pulumi.Output`) as leaves."""

Manifest: TypeAlias = dict[str, Value]
"""One Kubernetes object, spelt as the API server reads it."""


ROLES: Final = (
    "launcher",
    "workdir",
    "checkpoint",
    "network_policy",
    "gang",
    "service",
    "token",
    "pod_account",
    "account",
    "role",
    "role_binding",
    "store",
    "runtime",
    "workload",
    "autoscaler",
    "disruption_budget",
)
"""The fields of `Manifests`, in the order in which the objects are applied."""


@dataclasses.dataclass(frozen=True)
class Manifests:
    """The objects of one job; None for objects that the config does not need.

    Attributes:
        workload: PyTorchJob, batch/v1 Job or TrainJob.
        launcher: ConfigMap with the launcher; None when the image has it.
        workdir: ConfigMap with local code.
        service: headless Service in front of the rendezvous store; None for a single pod and for etcd.
        token: Secret for the store's token, with a placeholder; None where the launcher runs no store.
        pod_account: ServiceAccount of the pods, where the job has one of its own.
        account: ServiceAccount of the store's pod, whose one token is that of the driver.
        role: Role with what that driver may do.
        role_binding: RoleBinding of the two.
        store: Deployment of the dedicated rendezvous store.
        runtime: TrainingRuntime with the pods of a TrainJob; None for other workloads.
        checkpoint: PersistentVolumeClaim for checkpoints.
        network_policy: NetworkPolicy that closes the job's ports to others.
        gang: PodGroup of a gang scheduler.
        autoscaler: HorizontalPodAutoscaler of this package.
        disruption_budget: PodDisruptionBudget.
    """

    workload: Manifest
    launcher: Manifest | None = None
    workdir: Manifest | None = None
    service: Manifest | None = None
    token: Manifest | None = None
    pod_account: Manifest | None = None
    account: Manifest | None = None
    role: Manifest | None = None
    role_binding: Manifest | None = None
    store: Manifest | None = None
    runtime: Manifest | None = None
    checkpoint: Manifest | None = None
    network_policy: Manifest | None = None
    gang: Manifest | None = None
    autoscaler: Manifest | None = None
    disruption_budget: Manifest | None = None

    def objects(self) -> Iterator[tuple[str, Manifest]]:
        """Role and object, dependencies first: objects that the workload mounts or calls come before it."""
        for role in ROLES:
            manifest = getattr(self, role)
            if manifest is not None:
                yield role, manifest


def without_none(**fields: Value) -> dict[str, Value]:
    """The fields that are given; Kubernetes reads an explicit null as a deletion."""
    return {name: value for name, value in fields.items() if value is not None}
