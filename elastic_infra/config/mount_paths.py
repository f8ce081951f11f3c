"""Paths and names of this package's own volumes in the training container."""

from __future__ import annotations

from typing import Final

HOME: Final = "/home/elastic"
"""Home of the pods' user, which is writable in any image."""

LAUNCHER: Final = "/opt/elastic-infra"
"""The launcher's zip."""

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount point, not a temporary file
"""Shared memory of the processes."""

TMP: Final = "/tmp"  # noqa: S108 - a mount point, not a temporary file
"""Scratch space when the image is read-only."""

WORKDIR: Final = "/opt/elastic-infra-workdir"
"""The archive of `workdir` in the container that unpacks it."""

WORKDIR_VOLUMES: Final = frozenset({"workdir", "workdir-archive"})
"""Volume names that users cannot take beside a `workdir`."""

OWN_VOLUMES: Final = frozenset({"checkpoint", "home", "launcher", "shm", "tmp"})
"""Volume names that users cannot take."""
