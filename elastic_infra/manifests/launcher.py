"""The launcher's way into any image: a ConfigMap with a zip of its sources.

The name carries the zip's hash and the ConfigMap is immutable: the launcher never changes under a running job. The
component keeps a job at the launcher it started with, until something else restarts the job. With `launcher.verify` the
hash is a whole SHA-256, and each container compares it with the zip before it runs any of it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from elastic_infra.config import JobConfig, mount_paths
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.values import Late, digest_in
from elastic_infra.manifests.archive import build, stripped
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest, Value

ARCHIVE: Final = "launcher.zip"
MOUNTED: Final = f"{mount_paths.LAUNCHER}/{ARCHIVE}"
"""Path of the archive in each container that mounts it. As a program it puts itself before the image's and the user's
entries of PYTHONPATH."""

MODULE: Final = "elastic_infra.launcher"
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
        "metadata": metadata(name, _name(name, config), config),
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
    return config.launcher.config_map or _name(name, config)


def _name(name: str, config: JobConfig) -> str:
    return ObjectNames(name).launcher(whole_digest() if config.launcher.verify else digest())


def python(config: JobConfig, launcher: str | Late | None, *arguments: str) -> list[Value]:
    """The command of a container that runs code of the launcher, which is checked before if the config says so.

    Args:
        launcher: name of the ConfigMap that is mounted, None where the image has the launcher.
        arguments: Python's own.
    """
    if launcher is None or not config.launcher.verify:
        return ["python3", *arguments]
    return [*_check(), verified_digest(launcher), MOUNTED, *arguments]


def without_digest(container: Mapping[str, Value]) -> Mapping[str, Value]:
    """A container that says nothing of which launcher it checks."""
    command, check = container.get("command"), _check()
    if not isinstance(command, list) or command[: len(check)] != check:
        return container
    return {**container, "command": [*check, *command[len(check) + 1 :]]}


def _check() -> list[Value]:
    return ["python3", "-I", "-S", "-c", check_program()]


@functools.cache
def check_program() -> str:
    """The text of `verify.py` without comments: it is read by people who look at a pod."""
    return stripped((resources.files("elastic_infra") / "manifests/verify.py").read_text("utf-8")).strip()


def verified_digest(launcher: str | Late) -> str | Late:
    """The SHA-256 with which a ConfigMap's name ends.

    Raises:
        ValueError: the name has none; for a late one when it is known.
    """
    return _demanded_digest(launcher) if isinstance(launcher, str) else launcher.apply(_demanded_digest)


def _demanded_digest(name: Any) -> str:  # noqa: ANN401 - what a late value brings
    if found := digest_in(str(name)):
        return found
    message = (
        f"launcher.verify needs a ConfigMap whose name ends in '-' and the launcher's SHA-256, and {name!r} does not: "
        "take the `config_map` of an `ElasticLauncher` with `verify`, or leave `launcher.verify` out."
    )
    raise ValueError(message)


def digest() -> str:
    """Eight hex digits that change with the launcher's sources."""
    return whole_digest()[:8]


def whole_digest() -> str:
    """The archive's SHA-256 in hex digits, which no other archive has."""
    return _sha256(archive())


@functools.lru_cache(maxsize=1)
def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.lru_cache(maxsize=1)
def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


@functools.cache
def archive() -> bytes:
    """The zip that the wheel carries, or in a checkout one made of the current sources."""
    package = resources.files("elastic_infra")
    released = package / "manifests" / ARCHIVE
    return released.read_bytes() if released.is_file() else build(Path(str(package)))
