"""The launcher's way into any image: a ConfigMap with a zip of its sources.

The name carries the zip's hash and the ConfigMap is immutable: the launcher never changes under a running job. The
component keeps a job at the launcher it started with, until something else restarts the job.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from pathlib import Path
from typing import Final

from elastic_infra.config import JobConfig, mount_paths
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.values import Late
from elastic_infra.manifests.archive import build
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest, Value

ARCHIVE: Final = "launcher.zip"
MOUNTED: Final = f"{mount_paths.LAUNCHER}/{ARCHIVE}"
"""Path of the archive in each container that mounts it."""
COMMAND: Final = ("python3", MOUNTED)
"""Runs the zip, which is put before the image's and the user's entries of PYTHONPATH."""

MODULE_COMMAND: Final = ("python3", "-m", "elastic_infra.launcher")
STORE_MODULE: Final = "elastic_infra.launcher.store"
DRIVER_MODULE: Final = "elastic_infra.launcher.driver"

MAX_OBJECT_BYTES: Final = 262_144
"""`kubectl apply` keeps the whole object in an annotation, and Kubernetes bounds all annotations of an object:
https://kubernetes.io/docs/reference/using-api/declarative-config/"""


def launcher_config_map(name: str, config: JobConfig) -> Manifest:
    """The immutable ConfigMap that holds the launcher."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name, ObjectNames(name).launcher(digest()), config),
        "immutable": True,
        "binaryData": {**launcher_data()},
    }


def launcher_data() -> dict[str, str]:
    """The archive, as a ConfigMap holds it."""
    return {ARCHIVE: _encoded(archive())}


def module_path(*, is_mounted: bool) -> list[Value]:
    """The variable by which `python3 -m` finds a mounted launcher; none where the image has the launcher."""
    return [{"name": "PYTHONPATH", "value": MOUNTED}] if is_mounted else []


def newest_launcher(name: str, config: JobConfig) -> str | Late | None:
    """Name of the ConfigMap with this version's launcher, None where the image has the launcher."""
    if config.launcher.delivery == "image":
        return None
    return config.launcher.config_map or ObjectNames(name).launcher(digest())


def digest() -> str:
    """Eight hex digits that change with the launcher's sources."""
    return _digest(archive())


@functools.lru_cache(maxsize=1)
def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


@functools.lru_cache(maxsize=1)
def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


@functools.cache
def archive() -> bytes:
    """The zip that the wheel carries, or in a checkout one made of the current sources."""
    package = resources.files("elastic_infra")
    released = package / "manifests" / ARCHIVE
    return released.read_bytes() if released.is_file() else build(Path(str(package)))
