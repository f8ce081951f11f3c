"""The init container that looks at the cluster node, with the devices, volumes and variables of the training."""

from __future__ import annotations

from typing import Final

from elastic_infra.config import HealthCheck, JobConfig, mount_paths
from elastic_infra.config.values import Late, quantity
from elastic_infra.launcher.settings import env_name
from elastic_infra.manifests.figures import items
from elastic_infra.manifests.init_container import init_container
from elastic_infra.manifests.launcher import module_path, python
from elastic_infra.manifests.model import Value

CONTAINER: Final = "health"
MODULE: Final = "elastic_infra.launcher.health"
TORCH: Final = ("nvidia", "amd", "intel")
"""Vendors whose devices torch counts."""

NCCL: Final = ("nvidia", "amd")


def health_container(
    config: JobConfig,
    check: HealthCheck,
    launcher: str | Late | None,
    mounts: list[Value],
    environment: list[Value],
) -> Value:
    """The container.

    Args:
        launcher: the ConfigMap that is mounted.
        mounts: those of the training container.
        environment: its variables, among them those by which users tell NCCL of their network.
    """
    gpus, is_linked = looked_at(config, check)
    gpu = config.resources.gpu
    return init_container(
        config,
        CONTAINER,
        [
            *python(config, launcher, "-m", MODULE, "--timeout", str(check.timeout_seconds)),
            *(("--gpus", str(gpus)) if gpus else ()),
            *(("--nccl",) if is_linked else ()),
            *(("--disk", str(int(quantity(check.disk)))) if check.disk is not None else ()),
            *_folders(config),
        ],
        mounts=mounts,
        devices={gpu.resource_name: str(gpu.count)} if gpu is not None and gpus else None,
        env=_environment(config, environment),
    )


def looked_at(config: JobConfig, check: HealthCheck) -> tuple[int, bool]:
    """How many GPUs there should be, 0 where none are counted, and whether NCCL adds up over them."""
    gpu = config.resources.gpu
    if gpu is None or gpu.resource is not None or gpu.vendor not in TORCH:
        return 0, False
    is_linked = check.nccl and gpu.count > 1 and gpu.vendor in NCCL
    return (gpu.count if check.gpus or is_linked else 0), is_linked


def _folders(config: JobConfig) -> list[Value]:
    checkpoint = config.storage.checkpoint
    return [*([checkpoint.mount_path] if checkpoint else []), mount_paths.HOME]


def _environment(config: JobConfig, environment: list[Value]) -> list[Value]:
    """What the training sees, without what is said to the launcher, and where the check itself is."""
    kept: list[Value] = [each for each in items(environment) if not str(each["name"]).startswith(_OF_THE_LAUNCHER)]
    node: Value = {"name": env_name("cluster_node"), "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [node, *module_path(is_mounted=config.launcher.delivery == "configmap"), *kept]


_OF_THE_LAUNCHER: Final = ("ELASTIC_INFRA_", "PET_", "PYTHONPATH")
