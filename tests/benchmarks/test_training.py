"""The page has the committed figures of training in place, and an outage is what it is called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.training import __main__ as program
from benchmarks.training import labels, neighbours, outage, report

RESULTS = json.loads(program.RESULTS.read_text())
STEP = 0.1


def journal(*generations: tuple[int, int, float, range]) -> list[dict[str, Any]]:
    """The steps of generations: number, workers, the end of its first step, and the steps it does."""
    return [
        {"step": step, "rank": rank, "world": world, "generation": generation, "time": first + count * STEP}
        for generation, world, first, steps in generations
        for count, step in enumerate(steps)
        for rank in range(world)
    ]


def test_an_outage_ends_with_the_first_new_step() -> None:
    """Steps that are done again count, and one ordinary step does not."""
    lines = journal((1, 2, 1.0, range(1, 9)), (2, 2, 3.0, range(7, 20)))
    cost = outage.cost(lines, event=1.75)

    assert cost.first == pytest.approx(3.2 - 1.7 - STEP)
    assert cost.whole == pytest.approx(cost.first)
    assert cost.repeated == 2


def test_a_second_change_counts_until_the_job_is_whole() -> None:
    """The others go on alone for a while; their few steps are no measure of a step's length."""
    lines = journal((1, 2, 1.0, range(1, 9)), (2, 1, 2.0, range(9, 11)), (3, 2, 2.5, range(11, 20)))
    cost = outage.cost(lines, event=1.75)

    assert cost.first == pytest.approx(2.0 - 1.7 - STEP)
    assert cost.whole == pytest.approx(cost.first + 2.5 - 2.1 - STEP)
    assert cost.repeated == 0


def test_an_event_without_a_new_generation_has_no_cost() -> None:
    """Nothing tells its outage from chance."""
    with pytest.raises(ValueError, match="no generation"):
        outage.cost(journal((1, 2, 1.0, range(1, 9))), event=1.3)


@pytest.mark.parametrize(
    ("lines", "world", "after", "steady"),
    [
        ([], 2, 0.0, False),
        (journal((1, 2, 1.0, range(1, 6))), 2, 0.0, True),
        (journal((1, 2, 1.0, range(1, 5))), 2, 0.0, False),
        (journal((1, 2, 1.0, range(1, 6))), 3, 0.0, False),
        (journal((1, 2, 1.0, range(1, 9))), 2, 1.2, False),
        (journal((1, 2, 1.0, range(1, 9)), (2, 2, 3.0, range(6, 12))), 2, 1.75, False),
        (journal((1, 2, 1.0, range(1, 9)), (2, 2, 3.0, range(6, 14))), 2, 1.75, True),
    ],
)
def test_a_job_is_steady_after_some_new_steps_of_all(
    lines: list[dict[str, Any]], world: int, after: float, *, steady: bool
) -> None:
    """Of a whole group that began after the event; steps that are done again are not new."""
    assert outage.is_steady(lines, world, after) is steady


def test_waiting_is_measured_over_the_last_steps() -> None:
    """Rank 0's steps within the window count, whatever came before."""
    early, late = journal((1, 2, 1.0, range(1, 9))), journal((1, 2, 10.0, range(9, 20)))
    lines = [{**line, "waited": 5.0} for line in early] + [{**line, "waited": 0.002} for line in late]
    assert neighbours.waited(lines, window=0.85) == pytest.approx(0.02)


def test_copies_on_another_node_are_held_against_their_aim() -> None:
    """No job may wait longer."""
    found = {"megabytes": 100, "waited": [0.01, 0.021]}
    page = report.document({**RESULTS, "neighbours": found})
    assert "| 1.00%, 2.10% | <= 2% | **no** |" in page


def test_an_aim_that_is_missed_says_so() -> None:
    """The ratio of the medians is held against the aim of the size."""
    cost = {"whole": 1.0, "repeated": 0}
    changes = [
        {"event": "a node joins", "megabytes": 1000, "arm": arm, "cost": {"first": first, **cost}}
        for arm, first in (("in place", 0.8), ("restart", 1.0))
    ]
    page = report.document({**RESULTS, "changes": changes})

    assert "| 1 GB | a node joins | 0.80 (p95 0.80, n 1) | 1.00 (p95 1.00, n 1) | 0.80 | <= 0.7 | **no** |" in page


def test_a_change_beside_a_stopped_worker_is_held_against_the_deadline() -> None:
    """The difference of the medians counts, in seconds."""
    cost = {"whole": 7.0, "repeated": 0}
    changes = [
        {"event": labels.STOPPED, "megabytes": 10, "arm": arm, "cost": {"first": first, **cost}}
        for arm, first in (("in place", 6.0), ("restart", 0.5))
    ]
    page = report.document({**RESULTS, "stopped": changes})

    assert "| 6.00 (p95 6.00, n 1) | 0.50 (p95 0.50, n 1) | 5.50 | <= 5 | **no** |" in page


def test_a_job_that_was_lost_is_shown() -> None:
    """It has no figure, and is no zero."""
    change = {"event": "a node joins", "megabytes": 10, "arm": "in place", "cost": None}

    assert "| 10 MB | a node joins | over 100 1 of 1 |" in report.document({**RESULTS, "changes": [change]})
    assert "| 10 MB | a node joins | over 100 |" in report.headline({**RESULTS, "changes": [change]})
