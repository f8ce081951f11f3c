"""A small volume for one process, which sees it and no other process does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def small_volume(root: Path) -> tuple[str, ...]:
    """What goes before a command that shall find 256 KiB of its own at ``root``; skips a test that may not mount."""
    alone = ("unshare", "--map-root-user", "--mount")
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("needs unshare, and the right to mount")
    return (*alone, "sh", "-c", f'mount -t tmpfs -o size=256k tmpfs {root} && exec "$@"', "sh")
