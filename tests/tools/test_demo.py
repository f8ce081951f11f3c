"""The demo, as `make demo` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.run import ROOT


@pytest.mark.engine
def test_the_demo_ends_by_saying_what_to_type_next(pulumi_cli: Path) -> None:
    """Rendered, explained, previewed by a real engine, and the way to a real cluster last."""
    done = subprocess.run([sys.executable, "-m", "tools.demo"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{pulumi_cli}"
    titles = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert [title.split(":")[0] for title in titles] == [
        *("== What the API server gets", "== What it means", "== What `pulumi up` would do"),
    ]
    assert "8 to create" in done.stdout
    assert "pulumi up\n" in done.stdout.split("Next, on a cluster of yours")[1]
