"""`make versions`: every pin, read from where it is pinned."""

from __future__ import annotations

import subprocess
import sys

from tools import debian, versions
from tools.run import ROOT


def test_versions_come_from_the_lock() -> None:
    """A package that is locked differently by Python shows every version."""
    lock = "torch==2.14.1 ; python_full_version < '3.11' \\\n    --hash=sha256:0\ntorch==2.15.0 ; x\nuv==0.1 \\\n"

    assert versions.locked(lock, ("torch", "uv")) == [("torch", "2.14.1 or 2.15.0"), ("uv", "0.1")]


def test_every_pin_is_printed() -> None:
    """Go tools, Python packages and Debian's names each have a line."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.versions"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    lines = done.stdout.splitlines()
    assert any(line.split()[:2] == ["python", "torch"] for line in lines)
    assert any(line.split() == ["go", "training-operator", "1.9.3"] for line in lines)
    assert {line.split()[1] for line in lines if line.startswith("debian")} == set(debian.packages())
