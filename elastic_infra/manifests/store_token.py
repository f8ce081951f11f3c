"""The store's token: the Secret that holds it, and the variable that brings it to the store and to every node.

This module does not have the token. The component puts one into the Secret; a user who applies the objects by hand
makes the Secret by hand. A pod starts without the Secret too; the store is then open, and logs a warning.
"""

from __future__ import annotations

from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.names import ObjectNames
from elastic_infra.launcher.settings import env_name
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest, Value

KEY: Final = "token"
"""The Secret's one key."""
PLACEHOLDER: Final = "bWFkZSBieSBwdWx1bWkgdXA="
"""In place of the token (`made by pulumi up` in base64): a preview must show the same object each time."""
VARIABLE: Final = env_name("store_token")


def store_token_secret(name: str, config: JobConfig) -> Manifest:
    """The Secret, with a placeholder for the token."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(name, ObjectNames(name).store_token, config),
        "type": "Opaque",
        "data": {KEY: PLACEHOLDER},
    }


def with_token(secret: Manifest, encoded: Value) -> Manifest:
    """The Secret with this token, in base64."""
    return {**secret, "data": {KEY: encoded}}


def store_token_variable(name: str) -> Value:
    """The variable in which the launcher and the store look for the token."""
    reference: dict[str, Value] = {"name": ObjectNames(name).store_token, "key": KEY, "optional": True}
    return {"name": VARIABLE, "valueFrom": {"secretKeyRef": reference}}


def create_command(name: str, config: JobConfig) -> str:
    """The command that makes the Secret where no component does; the token does not appear in the shell's history."""
    return (
        f"kubectl create secret generic {ObjectNames(name).store_token} --namespace {config.namespace} "
        f'--from-literal={KEY}="$(openssl rand -hex 32)"'
    )
