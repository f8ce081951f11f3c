"""The headline table is made of the launcher's committed results, and a loss against them is seen."""

from __future__ import annotations

import pytest

from benchmarks.headline import __main__ as quick
from benchmarks.headline import table

RESULTS = quick.LAUNCHERS_TABLE.read_text()


def test_the_quick_benchmark_has_something_to_be_held_against() -> None:
    """Each row that it measures has a committed ratio."""
    committed = quick.ratios(quick.committed_seconds())

    assert set(committed) == {event.row for chain in quick.CHAINS for event in chain.events}
    assert None not in committed.values()


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
        ({"ours": [1.0, None], "tuned": [10.0]}, ["row: this launcher lost the job"]),
        ({"ours": [5.0], "tuned": [None]}, []),
    ],
)
def test_a_quarter_worse_is_a_loss(now: dict[str, list[float | None]], lines: list[str]) -> None:
    """Ratios are compared, and a job that torchrun loses has none."""
    committed = quick.ratios({"row": {"ours": [1.0, 3.0, 0.5], "tuned": [10.0]}})

    assert quick.losses(committed, quick.ratios({"row": now})) == lines


def test_a_row_that_is_not_committed_is_no_loss() -> None:
    """It has nothing to be worse than."""
    assert quick.losses({}, {"row": 0.5}) == []
