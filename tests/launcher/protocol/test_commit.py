"""The next generation: when there is one, its members, and what the end of the last one costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import commit
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Budget
from tests.launcher.protocol.states import FAILURE, INCARNATION, PAIR, connected, peer, ready

LIMITS = Limits(max_nodes=3, max_restarts=1)
BROKEN = replace(PAIR, phase="broken", cause=FAILURE)
DRAINED = replace(PAIR, phase="draining", cause=replace(FAILURE, kind="scale_up"))


def test_nothing_follows_while_a_member_works() -> None:
    """The heart of the guarantee: no workers start before all others have ended."""
    assert commit.commit(connected(LIMITS, DRAINED, peer("n1", "draining"), phase="stopped"), 0.0) is None
    assert commit.commit(connected(LIMITS, DRAINED, peer("n1", "stopped"), phase="stopping"), 0.0) is None


def test_survivors_keep_their_places_and_newcomers_follow() -> None:
    """A planned change is free."""
    state = connected(LIMITS, DRAINED, peer("n1", "stopped"), ready("n2"), phase="stopped")
    after = commit.commit(state, 0.0)

    assert after is not None
    assert [member.uuid for member in after.members] == ["n0", "n1", "n2"]
    assert (after.number, after.attempt, after.budget, after.phase) == (PAIR.number + 1, 1, Budget(), "running")


def test_a_failure_is_charged_and_the_last_one_ends_the_job() -> None:
    """With the exit code of the budget, once a lost node would have been noticed."""
    state = connected(LIMITS, BROKEN, peer("n1", "stopped"), phase="stopped")
    spent = replace(BROKEN, budget=Budget(restarts=1, charged=1))
    last = connected(LIMITS, spent, peer("n1", "stopped"), phase="stopped")
    again, end = commit.commit(state, 0.0), commit.commit(last, LIMITS.loss_wait)

    assert again is not None
    assert again.budget.restarts == 1
    assert commit.commit(last, 0.0) is None
    assert end is not None
    assert (end.phase, end.exit_code, end.ended_by) == ("final", 1, "n0")


@pytest.mark.parametrize(("known", "agreed"), [({"highest": 96}, None), ({"earlier": 96}, None), ({}, 96)])
def test_a_planned_change_after_progress_forgives_failures(known: dict[str, int], agreed: int | None) -> None:
    """A newcomer that fails before its first step is then left out, and does not end the job for one step's sake.

    A node that was no member, and may make the change too, knows the agreed stop step.
    """
    spent = replace(DRAINED, budget=Budget(restarts=2, charged=2, failed_step=5, same_step_failures=2))
    state = connected(LIMITS, spent, peer("n1", "stopped"), ready("n2"), phase="stopped")
    trained = connected(LIMITS, replace(spent, stop_step=agreed), peer("n1", "stopped"), phase="stopped")
    assert trained.workers is not None
    trained = replace(trained, workers=replace(trained.workers, **known))  # type: ignore[arg-type]  # numbers of steps
    stuck, after = commit.commit(state, 0.0), commit.commit(trained, 0.0)

    assert stuck is not None
    assert after is not None
    assert (stuck.budget, after.budget) == (spent.budget, Budget(charged=2, failed_step=96))


def test_a_failure_beside_a_loss_is_free() -> None:
    """Workers fail where a peer is lost: that is a membership change."""
    gone = replace(peer("n1", "member"), presence="disconnected")
    after = commit.commit(connected(LIMITS, BROKEN, gone, phase="stopped"), 0.0)

    assert after is not None
    assert (after.budget, [member.uuid for member in after.members]) == (Budget(), ["n0"])


@pytest.mark.parametrize(("state", "is_over"), [("finished", True), ("member", False), ("stopped", False)])
def test_the_job_is_over_when_every_member_has_finished(state: str, is_over: bool) -> None:
    """One that stopped has work left."""
    end = commit.succeed(connected(LIMITS, PAIR, peer("n1", state), phase="finished"), 5.0)

    assert (end is not None and end.phase == "final" and end.exit_code == 0 and end.ended_at == 1005) == is_over
    assert end is None or end.ended_by == "n0"
    assert (end is None) != is_over


def test_what_a_reborn_store_lost_is_brought_back() -> None:
    """As it was known, and confirmed by a node that cannot have missed a later one."""
    known = replace(PAIR, incarnation="before")
    state = replace(connected(LIMITS, None), latest_seen=known)
    unsure = commit.restore(replace(state, has_latest=False), 0.0)

    assert commit.restore(state, 0.0) == replace(known, confirmed=True)
    assert unsure == known
    assert commit.restore(connected(LIMITS, PAIR), 0.0) is None


def test_a_first_generation_needs_this_node() -> None:
    """Only a member commits its generation; there is none where the store knows one."""
    limits = Limits(max_nodes=1)
    formed = commit.form(connected(limits, None), 0.0)

    assert formed is not None
    assert (formed.number, formed.incarnation, formed.attempt) == (1, INCARNATION, 0)
    assert commit.form(connected(limits, PAIR), 0.0) is None
    assert commit.form(replace(connected(limits, None), ready=False), 0.0) is None
