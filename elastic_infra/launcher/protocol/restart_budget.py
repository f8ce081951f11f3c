"""What a failure costs the job: a pure function that says whether the job goes on, or with which exit code it ends.

The budget is global because the generation record holds it. The protocol charges only failures: a generation that ended
by a lost or leaving member, or by a planned change, costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..exit_codes import NO_PROGRESS, SCRIPT_FAILED
from .records import Budget, Cause

STARTUP_TRIES: Final = 2
"""A script that cannot start is tried twice: the first failure may be an accident, and a third try shows nothing
new."""
SAME_STEP_TRIES: Final = 3
"""Failures without a step of progress before the job ends with ``NO_PROGRESS``."""
ALONE_TRIES: Final = 2
"""A node that fails this many times in a row while its peers are healthy is left out."""


@dataclass(frozen=True)
class Verdict:
    """The budget after the failure, and the job's exit code where it is spent."""

    budget: Budget
    exit_code: int | None = None
    reason: str = ""


def charge(budget: Budget, failure: Cause, max_restarts: int) -> Verdict:
    """Charge one failure.

    After progress (a step beyond the last failed one) the budget is full again. Without reported steps and without
    start-up failures the rule is exactly torchrun's ``max_restarts``.
    """
    progressed = failure.step is not None and (budget.failed_step is None or failure.step > budget.failed_step)
    spent = _spend(budget, failure, fresh=progressed)
    if failure.startup and spent.startup_failures >= STARTUP_TRIES:
        return Verdict(spent, SCRIPT_FAILED, f"the script failed while starting, {STARTUP_TRIES} times")
    if spent.same_step_failures >= SAME_STEP_TRIES:
        return Verdict(spent, NO_PROGRESS, f"no progress: step {spent.failed_step} failed {SAME_STEP_TRIES} times")
    if spent.restarts > max_restarts:
        return Verdict(spent, SCRIPT_FAILED, f"{spent.restarts} failures, max_restarts is {max_restarts}")
    return Verdict(spent)


def forgive(budget: Budget, step: int | None) -> Budget:
    """The full budget again, where a generation that ended without a failure went beyond the last failed step.

    The next failure may come before its generation makes a step, so that it does not say how far the job was.

    Args:
        budget: what is spent.
        step: the newest step of that generation; None where none is known.
    """
    if step is None or budget.failed_step is None or step <= budget.failed_step:
        return budget
    return Budget(charged=budget.charged, failed_step=step)


def refund(budget: Budget) -> Budget:
    """Take the last charge back, because the failed node turned out to be lost."""
    return replace(budget, restarts=max(0, budget.restarts - 1), charged=max(0, budget.charged - 1))


def charge_size(budget: Budget, max_restarts: int) -> Budget:
    """Charge a world size that the script refuses: one restart, but never beyond ``max_restarts``."""
    return replace(
        budget,
        restarts=min(budget.restarts + 1, max_restarts),
        charged=budget.charged + 1,
        culprit="",
        culprit_failures=0,
    )


def keeps_failing_alone(charged: Budget) -> bool:
    """Whether the failure just charged leaves its node out: the same node failed again, without progress."""
    return bool(charged.culprit) and charged.culprit_failures >= ALONE_TRIES


def _spend(budget: Budget, failure: Cause, *, fresh: bool) -> Budget:
    again = failure.uuid == budget.culprit and not fresh
    return Budget(
        restarts=1 if fresh else budget.restarts + 1,
        charged=budget.charged + 1,
        startup_failures=budget.startup_failures + 1 if failure.startup else 0,
        failed_step=failure.step if fresh else budget.failed_step,
        same_step_failures=_same_step(budget, fresh=fresh),
        culprit=failure.uuid,
        culprit_failures=budget.culprit_failures + 1 if again else 1,
    )


def _same_step(budget: Budget, *, fresh: bool) -> int:
    if fresh:
        return 1
    return budget.same_step_failures + 1 if budget.failed_step is not None else 0
