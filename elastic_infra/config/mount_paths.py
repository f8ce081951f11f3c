"""Where this package mounts its own volumes in the training container, and what they are called."""

from __future__ import annotations

from typing import Final

HOME: Final = "/home/elastic"
"""Home of the user that pods run as; writable whatever the image says."""

LAUNCHER: Final = "/opt/elastic-infra"
"""The launcher's zip."""

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount point, not a temporary file
"""Memory that processes share."""

TMP: Final = "/tmp"  # noqa: S108 - a mount point, not a temporary file
"""Scratch space when the image is read-only."""

OWN_VOLUMES: Final = frozenset({"checkpoint", "home", "launcher", "shm", "tmp"})
"""Volume names that users cannot take."""
