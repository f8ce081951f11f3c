"""What failures cost, as tables and as laws over any sequence of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.protocol import restart_budget
from elastic_infra.launcher.protocol.records import Budget, Cause


def failure(step: int | None = None, *, startup: bool = False, node: str = "a") -> Cause:
    return Cause("worker_failed", node, node, 0, 1, step, startup=startup)


def spend(failures: Sequence[Cause], max_restarts: int) -> tuple[int, int | None]:
    """How many failures it takes to the end, and the end's exit code; None where there is none."""
    budget = Budget()
    for count, one in enumerate(failures, 1):
        verdict = restart_budget.charge(budget, one, max_restarts)
        if verdict.exit_code is not None:
            return count, verdict.exit_code
        budget = verdict.budget
    return len(failures), None


@pytest.mark.parametrize(
    ("failures", "max_restarts", "end"),
    [
        ([failure()] * 9, 0, (1, 1)),
        ([failure()] * 9, 3, (4, 1)),
        ([failure(step) for step in range(10)], 3, (10, None)),
        ([failure(step) for step in range(10)], 0, (1, 1)),
        ([failure(5)] * 9, 3, (3, 93)),
        ([failure(5)] * 9, 1, (2, 1)),
        ([failure(5), failure(4), failure(3)], 9, (3, 93)),
        ([failure(5), failure(5), failure(6), failure(6), failure(6)], 9, (5, 93)),
        ([failure(startup=True)] * 9, 9, (2, 1)),
        ([failure(startup=True), failure(), failure(startup=True), failure()], 9, (4, None)),
    ],
)
def test_failures_end_the_job_when_they_must(
    failures: list[Cause], max_restarts: int, end: tuple[int, int | None]
) -> None:
    """R8: progress resets the budget, the same step ends at exactly three, a failing start at exactly two."""
    assert spend(failures, max_restarts) == end


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 5))
def test_without_steps_it_is_torchruns_rule(nodes: list[bool], max_restarts: int) -> None:
    """No steps, no start-up window: exactly ``max_restarts`` failures are survived, on any nodes."""
    count, code = spend([failure(node="a" if first else "b") for first in nodes], max_restarts)

    assert (count, code) == ((max_restarts + 1, 1) if len(nodes) > max_restarts else (len(nodes), None))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_no_step_fails_more_than_three_times(steps: list[int]) -> None:
    """With any budget the job never lives through a third failure without progress in between."""
    count, code = spend([failure(step) for step in steps], 10**6)
    best, without_progress = -1, 0
    for step in steps[:count]:
        best, without_progress = (step, 1) if step > best else (best, without_progress + 1)

    assert (code == 93) == (without_progress == 3)


def test_progress_without_a_failure_fills_the_budget() -> None:
    """Failures before the first step of a generation count from there, and say nothing of the step that failed once."""
    once = restart_budget.charge(Budget(), failure(step=5, node="a"), 3).budget
    later, stuck = (restart_budget.forgive(once, step) for step in (96, 5))
    first = restart_budget.charge(later, failure(node="b"), 3)
    second = restart_budget.charge(first.budget, failure(node="b"), 3)
    third = restart_budget.charge(second.budget, failure(node="c"), 3)

    assert stuck == restart_budget.forgive(once, None) == once
    assert restart_budget.forgive(Budget(), 96) == Budget()
    assert restart_budget.keeps_failing_alone(second.budget)
    assert [verdict.exit_code for verdict in (first, second, third)] == [None, None, 93]
    assert (first.budget.restarts, first.budget.charged) == (1, 2)


def test_refund_takes_back_one_charge() -> None:
    """A charge whose culprit turned out to be lost leaves the budget as it was."""
    budget = restart_budget.charge(Budget(), failure(), 3).budget

    assert (restart_budget.refund(budget).restarts, restart_budget.refund(budget).charged) == (0, 0)


def test_same_node_twice_is_one_to_leave_out() -> None:
    """The second failure in a row of one node, without progress, is its own and not the job's."""
    once = restart_budget.charge(Budget(), failure(node="a"), 3).budget
    twice = restart_budget.charge(once, failure(node="a"), 3).budget
    other = restart_budget.charge(once, failure(node="b"), 3).budget

    assert [restart_budget.keeps_failing_alone(budget) for budget in (once, twice, other)] == [False, True, False]


def test_progress_between_two_failures_of_a_node_clears_it() -> None:
    """A node whose workers failed once, and again a thousand steps later, stays."""
    once = restart_budget.charge(Budget(), failure(step=5, node="a"), 3).budget
    stuck = restart_budget.charge(once, failure(step=5, node="a"), 3).budget
    later = restart_budget.charge(once, failure(step=1005, node="a"), 3).budget

    assert [restart_budget.keeps_failing_alone(budget) for budget in (stuck, later)] == [True, False]
