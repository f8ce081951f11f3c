"""The pages of what happens to jobs on a cluster say what many runs and many faults say together."""

from __future__ import annotations

from dataclasses import asdict

import pytest

pytest.importorskip("torch", reason="the benchmarks on the cluster import its scripts")

from benchmarks.cluster import __main__ as program
from benchmarks.cluster import report, soak
from benchmarks.cluster.figures import Cost
from benchmarks.cluster.report import Sample


def cost(outage: float, lost: int = 0, outcome: str = "succeeded") -> Cost:
    """Of a job in which one container was started anew."""
    return Cost(outage, lost, restarts=1, outcome=outcome)


def test_a_cell_has_the_median_and_what_differs_between_runs() -> None:
    """Seconds with p95 and n, the span of repeated steps, and how many runs had which end."""
    samples = [
        Sample("grow", "ours", cost(1.0, lost=2)),
        Sample("grow", "ours", cost(3.0, lost=5)),
        Sample("grow", "ours", cost(1.5, lost=2, outcome="the job failed")),
        Sample("grow", "tuned", cost(2.0)),
    ]

    assert report.table(samples).splitlines() == [
        "| event | plain | tuned | ours | ours / plain (aim 0.1) | ours / tuned (aim 0.5) |",
        "| --- | --- | --- | --- | --- | --- |",
        (
            "| grow | not run | 2.0 s (p95 2.0, n 1), 0 steps, 1 restarts, succeeded "
            "| 1.5 s (p95 3.0, n 3), 2 to 5 steps, 1 restarts, succeeded 2 of 3, the job failed 1 of 3 "
            "| not known | 0.75, missed |"
        ),
    ]


def test_the_page_is_made_of_the_samples_that_were_kept() -> None:
    """As they are read from the file."""
    sample = Sample("grow", "ours", cost(1.0))
    found = {"machine": ["2 CPUs"], "import_seconds": 3.3, "limit_seconds": 200, "samples": [asdict(sample)]}

    page = report.document(found)

    assert report.table([sample]) in page
    assert "only import torch had done so 3.3 s after" in page.replace("\n", " ")


def test_arms_take_turns_and_no_run_of_plain_torchrun_is_needed() -> None:
    """Its rows take minutes; a row that is asked for by name is the only one."""
    wanted = program._parse(["--plain", "0", "--tuned", "1", "--ours", "2", "--only", "grow"])

    assert [(row.name, arm) for row, arm in program._cells(wanted)] == [
        ("scale up 2 to 3", arm) for arm in ("tuned", "ours", "ours")
    ]


def test_the_page_of_the_soak_has_a_row_for_each_kind_of_fault() -> None:
    """With the seed, the number of faults, and each round's seconds and nodes; a fault that never came has no row."""
    rounds = [("a worker killed", 2.0, 2), ("the store lost", 3.0, 3), ("a worker killed", 7.0, 3)]
    struck = [{"kind": kind, "seconds": seconds, "nodes": nodes} for kind, seconds, nodes in rounds]
    page = soak.document({"machine": ["2 CPUs"], "seed": 5, "planned": 3, "steps": 99, "faults": struck})

    assert page.startswith("# Random faults on a cluster\n\n- 2 CPUs\n")
    assert "Seed 5: 3 of 3 faults, and the job succeeded at step 99" in page
    assert page.endswith(
        "| a worker killed | 2 | 4 s | 7 s | 7 s | 2 s (2), 7 s (3) |\n"
        "| the store lost | 1 | 3 s | 3 s | 3 s | 3 s (3) |\n"
    )
