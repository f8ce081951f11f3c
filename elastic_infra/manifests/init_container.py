"""What every init container of a training pod has: the job's image, its CPU and memory, and its security."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.manifests.model import Value, without_none
from elastic_infra.manifests.security import container_security


def init_container(
    config: JobConfig,
    name: str,
    command: list[Value],
    *,
    mounts: list[Value],
    devices: dict[str, Value] | None = None,
    **more: Value,
) -> dict[str, Value]:
    """An init container. It asks for no more than the training container, so that the pod asks for no more either.

    Args:
        devices: accelerators of the training container that it needs as well.
        more: further fields.
    """
    asked = config.resources
    amounts = {
        **without_none(**{"cpu": asked.cpu, "memory": asked.memory, "ephemeral-storage": asked.ephemeral_storage}),
        **(devices or {}),
    }
    return without_none(
        **{
            "name": name,
            "image": config.image,
            "imagePullPolicy": config.image_pull_policy,
            "command": command,
            "resources": {"requests": dict(amounts), "limits": dict(amounts)} if amounts else None,
            "volumeMounts": mounts,
            "securityContext": container_security(config),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            **more,
        }
    )
