"""Service accounts: the one that the pods run as, and what every account of this package has."""

from __future__ import annotations

from elastic_infra.config import JobConfig
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest, Value


def account_name(name: str, config: JobConfig) -> Value:
    """The account of the pods; None for the namespace's default one."""
    return name if config.security.own_service_account else config.security.service_account


def service_account(name: str, object_name: str, config: JobConfig) -> Manifest:
    """An account, which no pod gets a token of unless it asks."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(name, object_name, config),
        "automountServiceAccountToken": False,
    }
