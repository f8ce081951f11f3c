"""Security of the pods and of their containers, as the profile requires."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.manifests.model import Value, without_none


def pod_security(config: JobConfig) -> dict[str, Value]:
    """Security of the pod, as its profile requires.

    Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    user = config.security.run_as_user
    return without_none(
        runAsNonRoot=True if config.security.profile == "restricted" else None,
        runAsUser=user,
        runAsGroup=user,
        fsGroup=user,
        fsGroupChangePolicy="OnRootMismatch",
        seccompProfile={"type": "RuntimeDefault"},
    )


def container_security(config: JobConfig) -> dict[str, Value]:
    """Security of the container, as its profile requires."""
    restricted = config.security.profile == "restricted"
    return without_none(
        allowPrivilegeEscalation=False if restricted else None,
        capabilities={"drop": ["ALL"]} if restricted else None,
        readOnlyRootFilesystem=True if config.security.read_only_root else None,
    )
