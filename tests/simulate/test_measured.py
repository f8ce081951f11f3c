"""The numbers in the package are the committed measurements, and the defaults of what is simulated."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from elastic_infra.cli.simulate import SNAPSHOT_SHARE
from elastic_infra.simulate.measured import OURS, ROWS, TORCHRUN
from elastic_infra.simulate.scenario import Costs

ROOT = Path(__file__).resolve().parents[2]
RESULTS = (ROOT / "benchmarks/launcher/RESULTS.md").read_text()


@pytest.mark.parametrize("latency", ROWS)
def test_latencies_are_the_committed_medians(latency: str) -> None:
    """After a new measurement the numbers of the row are to be written into the module."""
    head = next(line for line in RESULTS.splitlines() if line.startswith("|  | ours"))
    row = next(line for line in RESULTS.splitlines() if line.startswith(f"| {ROWS[latency]} |"))
    columns = dict(zip(head.split("|")[2:], row.split("|")[2:], strict=True))
    ours, tuned = (re.match(r" ([0-9.]+) s", columns[column]) for column in (" ours ", " tuned torchrun "))

    assert ours
    assert tuned
    assert (getattr(OURS, latency), getattr(TORCHRUN, latency)) == (float(ours[1]), float(tuned[1]))


def test_defaults_are_those_of_the_library() -> None:
    """Read from its text, for the library needs torch."""
    tree = ast.parse((ROOT / "elastic_infra/training/loop.py").read_text())
    given = {
        node.target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }

    assert given["MEMORY_SHARE"] == SNAPSHOT_SHARE
    assert given["durable_seconds"] == Costs().checkpoint.interval_seconds
    snapshot = Costs().snapshot
    assert snapshot is not None
    assert snapshot.pause_seconds / SNAPSHOT_SHARE == snapshot.interval_seconds
