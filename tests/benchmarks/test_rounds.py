"""Figures of programs that are measured in turns."""

from __future__ import annotations

from benchmarks.common import stacks
from benchmarks.common.rounds import Figure, Rounds, cell, ratio

TIME = Figure("up, s", is_time=True)


def rounds(*values: float) -> Rounds:
    """Runs of one program, of which each took so long."""
    return [{"up": value} for value in values]


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """A ratio compares runs of one round, so that a round on a busy machine changes no ratio."""
    assert cell("up", TIME, rounds(2, 20, 300), rounds(1, 10, 100)) == "20.0 (p95 300.0; 2.00)"


def test_a_program_that_ran_less_often_is_compared_with_the_rounds_that_it_was_in() -> None:
    """Its runs stood beside the others' first ones."""
    assert ratio("up", rounds(8, 16), rounds(1, 2, 99)) == 8


def test_only_times_that_were_taken_more_than_once_have_a_p95() -> None:
    """The size of a state is the same each time, and of one run there is no other."""
    assert cell("up", TIME, rounds(2), rounds(1)) == "2.0 (2.00)"
    assert cell("up", Figure("state, MB", 1e6, 2), rounds(2e6, 2e6), rounds(1e6, 1e6)) == "2.00 (2.00)"


def test_programs_take_turns() -> None:
    """In each round every program runs once, until it has had its rounds."""
    ran: list[str] = []

    def measure(program: str) -> dict[str, float]:
        ran.append(program)
        return {"up": len(ran)}

    found = stacks.taking_turns(measure, {"slow": 1, "quick": 2})

    assert ran == ["slow", "quick", "quick"]
    assert found == {"slow": [{"up": 1}], "quick": [{"up": 2}, {"up": 3}]}
