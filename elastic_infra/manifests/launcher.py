"""The launcher's way into any image: a ConfigMap with a zip of its sources.

The same sources give the same bytes: stored, sorted, with fixed times. The name carries their hash, so that a new
version of the package is a new ConfigMap and a visible restart, never a silent change under a running job.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import zipfile
from importlib import resources
from typing import TYPE_CHECKING, Final

from elastic_infra.config import JobConfig, mount_paths
from elastic_infra.config.names import ObjectNames
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest

if TYPE_CHECKING:
    from importlib.abc import Traversable

ARCHIVE: Final = "launcher.zip"
COMMAND: Final = ("python3", f"{mount_paths.LAUNCHER}/{ARCHIVE}")
"""Runs the zip. It puts itself in front of the PYTHONPATH that the image and the user have, and keeps theirs."""

MODULE_COMMAND: Final = ("python3", "-m", "elastic_infra.launcher")
STORE_MODULE: Final = "elastic_infra.launcher.store"

MAX_ARCHIVE_BYTES: Final = 700 * 1024
"""A ConfigMap holds 1 MiB, and base64 adds a third."""

_CONTENT: Final = ("__init__.py", "launcher", "training")
_FIXED_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
"""The zip format's number for the kind of system; Python would write the one it runs on."""
_ENTRY: Final = '''\
"""Entry of the mounted launcher: reachable for itself and for the workers that it starts."""

import os
import sys

archive = sys.path[0]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [archive, os.environ.get("PYTHONPATH")]))

from elastic_infra.launcher.__main__ import main  # noqa: E402 - after the path is set

sys.exit(main())
'''


def launcher_config_map(name: str, config: JobConfig) -> Manifest:
    """The immutable ConfigMap that holds the launcher."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name, ObjectNames(name).launcher(digest()), config),
        "immutable": True,
        "binaryData": {ARCHIVE: _encoded(archive())},
    }


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
    """The zip: sources of the launcher and of what training scripts import, and its entry."""
    package = resources.files("elastic_infra")
    files = {"__main__.py": _ENTRY.encode()}
    for part in _CONTENT:
        _collect(package.joinpath(part), f"elastic_infra/{part}", files)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _FIXED_TIME)
            entry.create_system = _UNIX
            target.writestr(entry, files[path])
    return buffer.getvalue()


def _collect(source: Traversable, path: str, files: dict[str, bytes]) -> None:
    if source.is_dir():
        for child in source.iterdir():
            _collect(child, f"{path}/{child.name}", files)
    elif path.endswith(".py"):
        files[path] = source.read_bytes()
