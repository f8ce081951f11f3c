"""The numbers in the package are the committed measurements, and the defaults of what is simulated."""

from __future__ import annotations

import ast
import json
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from elastic_infra.cli.simulate import SNAPSHOT_SHARE
from elastic_infra.simulate.measured import EVENTS, IN_PLACE, RESTARTS, ROWS, TORCHRUN, Latencies, Measured
from elastic_infra.simulate.scenario import Costs

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = (ROOT / "benchmarks/launcher/RESULTS.md").read_text()
TRAINING = json.loads((ROOT / "benchmarks/training/RESULTS.json").read_text())["changes"]


def constant(path: str, name: str) -> float:
    """A number of a script that needs torch, from its text."""
    found = re.search(rf"^{name} = ([0-9.]+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert found
    return float(found[1])


OUTAGE_STEP_SECONDS = constant("benchmarks/launcher/train.py", "STEP_SECONDS")
"""The step at the end of each outage of the launcher's benchmark."""
STEP_SECONDS = constant("benchmarks/training/train.py", "STEP_SECONDS")
"""What a step of the training benchmark takes at least."""


def outage(arm: str, latency: str, megabytes: int) -> float:
    """Seconds until the job was whole again, less the steps that were done again."""
    event = EVENTS[latency]
    costs = [
        each["cost"] for each in TRAINING if (each["arm"], each["event"], each["megabytes"]) == (arm, event, megabytes)
    ]
    repeated = 0.0 if latency == "join" else 0.5 + statistics.median(cost["repeated"] for cost in costs)
    return float(statistics.median(cost["whole"] for cost in costs)) - repeated * STEP_SECONDS


def of_a_gigabyte(arm: str, latency: str) -> float:
    """Seconds that a gigabyte of state adds."""
    return (outage(arm, latency, 1000) - outage(arm, latency, 10)) / 0.99


@pytest.mark.parametrize("latency", ROWS)
def test_latencies_are_the_committed_medians(latency: str) -> None:
    """After a new measurement the numbers of the row are to be written into the module."""
    head = next(line for line in LAUNCHER.splitlines() if line.startswith("|  | ours"))
    row = next(line for line in LAUNCHER.splitlines() if line.startswith(f"| {ROWS[latency]} |"))
    columns = dict(zip(head.split("|")[2:], row.split("|")[2:], strict=True))
    ours, tuned = (re.match(r" ([0-9.]+) s", columns[column]) for column in (" ours ", " tuned torchrun "))

    assert ours
    assert tuned
    assert getattr(RESTARTS.stateless, latency) == pytest.approx(float(ours[1]) - OUTAGE_STEP_SECONDS)
    assert getattr(TORCHRUN.stateless, latency) == pytest.approx(float(tuned[1]) - OUTAGE_STEP_SECONDS)


@pytest.mark.parametrize("latency", EVENTS)
def test_changes_in_place_are_the_committed_medians(latency: str) -> None:
    """With the smallest measured state, and what a gigabyte adds."""
    assert getattr(IN_PLACE.stateless, latency) == pytest.approx(outage("in place", latency, 10), abs=0.0006)
    assert getattr(IN_PLACE.per_gigabyte, latency) == pytest.approx(of_a_gigabyte("in place", latency), abs=0.006)


def test_a_newcomers_state_is_the_committed_one() -> None:
    """What a restart with a newcomer takes longer than one without, for each gigabyte; nothing else depends on it."""
    longer = of_a_gigabyte("restart", "join") - of_a_gigabyte("restart", "crash")

    assert RESTARTS.per_gigabyte == Latencies(join=round(longer, 2))
    assert TORCHRUN.per_gigabyte == Latencies()
    assert IN_PLACE.stateless.start == RESTARTS.stateless.start


@pytest.mark.parametrize("latency", EVENTS)
@pytest.mark.parametrize("megabytes", [10, 300, 1000])
def test_the_line_meets_every_measured_state(latency: str, megabytes: int) -> None:
    """Within a tenth or 0.04 s; but a newcomer's 300 MB take a quarter of what the line between 10 MB and 1 GB says."""
    simulated = getattr(IN_PLACE.latencies(megabytes * 1e6), latency)
    measured = outage("in place", latency, megabytes)

    if (latency, megabytes) == ("join", 300):
        assert simulated == pytest.approx(4 * measured, rel=0.1)
    else:
        assert simulated == pytest.approx(measured, rel=0.1, abs=0.04)


def test_a_networks_own_rate_replaces_the_measured_one() -> None:
    """Only a node that comes is sent a state over the network."""
    measured = Measured(Latencies(1.0, 2.0, 3.0, 4.0, 5.0), Latencies(0.0, 0.1, 0.2, 0.3, 0.4))

    assert measured.latencies(20e9) == Latencies(1.0, 4.0, 7.0, 10.0, 13.0)
    assert measured.latencies(20e9, 2e9) == replace(measured.latencies(20e9), join=15.0)


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
