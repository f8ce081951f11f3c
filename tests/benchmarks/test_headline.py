"""The headline table is made of the launcher's committed results, and a loss against them is seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.headline import __main__ as quick
from benchmarks.headline import table
from benchmarks.launcher import arms, measure, scenario

RESULTS = quick.LAUNCHERS_TABLE.read_text()


def test_the_quick_benchmark_has_something_to_be_held_against() -> None:
    """Each row that it measures has a committed ratio."""
    committed = quick.ratios(quick.committed_seconds())

    assert set(committed) == {event.row for chain in quick.chains(quick.PAIRS) for event in chain.events}
    assert None not in committed.values()


def test_the_rows_that_it_measures_are_those_that_the_readme_names() -> None:
    """The first, the third and the last of the table."""
    measured = {event.row for chain in quick.chains(quick.PAIRS) for event in chain.events}

    assert [number for number, row in enumerate(table.ROWS.values(), 1) if row in measured] == [1, 3, len(table.ROWS)]


def test_the_committed_figures_are_of_pairs_and_say_when_and_how_they_were_measured() -> None:
    """As many runs of both launchers, two or more, the day, the command, and the five minutes that it may take."""
    results = json.loads(quick.RESULTS.read_text())

    assert all(len(by_arm["ours"]) == len(by_arm["tuned"]) >= 2 for by_arm in results["seconds"].values())
    assert re.fullmatch(r"measured 20\d\d-\d\d-\d\d by `python -m benchmarks\.headline.*`", results["machine"][-1])
    assert results["wall_seconds"] <= 300


def test_a_ratio_is_the_median_of_the_pairs() -> None:
    """A pair that ran on a busy machine is slow in both of its runs, and so changes no ratio."""
    found: quick.Found = {"row": {"ours": [1.0, 50.0, 2.0], "tuned": [10.0, 500.0, 40.0]}}

    assert quick.ratios(found) == {"row": 0.1}
    assert quick.compared(found, {"row": 0.05}) == [
        "row: 1/10.0 of tuned torchrun (1/20.0 is committed); pairs: 1/10.0, 1/10.0, 1/20.0"
    ]


def test_each_row_gets_as_many_runs_of_both_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take turns, whether events repeat in a job or not."""

    def run(chain: scenario.Chain, arm: arms.Arm, _say: object) -> Iterator[measure.Sample]:
        jobs.append(arm.name)
        return (measure.Sample(event.row, arm.name, 1.0) for event in chain.events * chain.repeat)

    jobs: list[str] = []
    monkeypatch.setattr(scenario, "run", run)
    found = quick.measured(3)

    assert {len(values) for by_arm in found.values() for values in by_arm.values()} == {3}
    assert jobs == 4 * ["ours", "tuned"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("2.09 s (p95 2.39, n 8)", "2.1"),
        ("22.81 s (p95 22.91, n 3)", "23"),
        ("82.64 s (p95 82.64, n 1); lost 1 of 2", "83, or job lost"),
        ("lost 3 of 3", "job lost"),
        ("lost", "job lost"),
    ],
)
def test_a_cell_is_shown_in_two_digits(cell: str, shown: str) -> None:
    """The median, and whether the job was lost."""
    row = f"| scale up 2 to 3 | {cell} | {cell} | {cell} |"
    others = (f"| {name} | lost 1 | lost 1 | lost 1 |" for name in table.WITH_START.values() if "up" not in name)

    assert str(table.committed("\n".join([row, *others]))["scale up 2 to 3"]["tuned"]) == shown


@pytest.mark.parametrize("results", ["", "| scale up 2 to 3 | soon | - | - |"])
def test_a_table_that_cannot_be_read_is_an_error(results: str) -> None:
    """A row that is missing, or a cell that is no figure."""
    with pytest.raises(ValueError, match="launcher's table"):
        table.committed(results)


def test_what_was_not_measured_is_in_brackets() -> None:
    """Rows of plain torchrun are the committed ones."""
    text = quick.shown({"scale up 2 to 3": {"ours": [1.0, 2.0, 9.0], "tuned": [None]}}, RESULTS)

    assert "| a third node joins | 2.0 | job lost | (job lost) |" in text


@pytest.mark.parametrize(
    ("now", "lines"),
    [
        ({"ours": [1.2], "tuned": [10.0]}, []),
        ({"ours": [1.3], "tuned": [10.0]}, ["row: 1/7.7 of tuned torchrun, 1/10.0 is committed"]),
        ({"ours": [1.0, None], "tuned": [10.0, 10.0]}, ["row: this launcher lost the job"]),
        ({"ours": [5.0], "tuned": [None]}, []),
    ],
)
def test_a_quarter_worse_is_a_loss(now: dict[str, list[float | None]], lines: list[str]) -> None:
    """Ratios are compared, and a job that torchrun loses has none."""
    committed = quick.ratios({"row": {"ours": [1.0, 3.0, 0.5], "tuned": [10.0, 10.0, 10.0]}})

    assert quick.losses(committed, quick.ratios({"row": now})) == lines


def test_a_row_that_is_not_committed_is_no_loss() -> None:
    """It has nothing to be worse than."""
    assert quick.losses({}, {"row": 0.5}) == []


def test_what_is_written_is_held_against_what_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--write` with a loss says so, ends with 1, and the next run is held against the new figures."""
    monkeypatch.setattr(quick, "RESULTS", tmp_path / "RESULTS.json")
    monkeypatch.setattr(quick, "machine", SimpleNamespace(import_seconds=float, facts=lambda *_: ["machine"]))
    rounds = iter([1.0, 2.0, 2.0])
    (tmp_path / "RESULTS.json").write_text('{"seconds": {"row": {"ours": [1.0], "tuned": [10.0]}}}')

    def measured(_pairs: int) -> dict[str, dict[str, list[float]]]:
        return {"row": {"ours": [next(rounds)], "tuned": [10.0]}}

    monkeypatch.setattr(quick, "measured", measured)
    assert [quick.main(["--write"]) for _ in range(3)] == [0, 1, 0]
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith(("No ratio", "row: "))][1::2] == [
        "No ratio is more than 25 % worse than the one that it replaces.",
        "row: 1/5.0 of tuned torchrun, 1/10.0 is committed",
        "No ratio is more than 25 % worse than the one that it replaces.",
    ]
