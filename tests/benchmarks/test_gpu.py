"""What the benchmark on GPUs says of its figures, and that it measures nothing without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import report
from tests.gpu import device as devices

KILLED = "a worker of 1 is killed"
RESULTS: dict[str, Any] = {
    "machine": ["torch 2.15"],
    "samples": [
        {"row": KILLED, "arm": "ours", "value": 0.5, "outcome": ""},
        {"row": KILLED, "arm": "tuned", "value": 5.0, "outcome": ""},
        {"row": "a worker of 2 is killed", "arm": "tuned", "value": None, "outcome": "lost"},
    ],
    "starts": {"ours": [{"context": 0.25, "group": 0.5}], "tuned": []},
    "skipped": {"a second node joins": "two ranks cannot meet"},
    "copies": {"device": "a GPU", "megabytes": 1000, "seconds": {"a snapshot": [0.1, 0.3, 0.2]}},
}


def test_the_page_shows_outages_starts_stalls_and_what_is_missing() -> None:
    """Medians with their numbers of runs; a job that was lost and a row that was left out are no zeros."""
    page = report.document(RESULTS)

    assert f"| {KILLED} | 0.50 s (p95 0.50, n 1) | 5.00 s (p95 5.00, n 1) | 1/10.0 |" in page
    assert "| a worker of 2 is killed | - | lost | - |" in page
    assert "- not measured: a second node joins: two ranks cannot meet" in page
    assert "| context | 0.250 s (n 1) | - |" in page
    assert "| a snapshot | 0.200 s (n 3) |" in page


def test_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The reason is printed, and that is no failure."""
    monkeypatch.setattr(program, "RESULTS", tmp_path / "RESULTS.json")
    monkeypatch.setattr(devices, "missing", lambda _: "no GPU")

    assert program.main(["--write"]) == 0
    assert capsys.readouterr().out == "Nothing is measured: no GPU.\n"
    assert not program.RESULTS.exists()
