"""Why a running generation ends, and the agreement on the step at which it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import actions, change, events, machine
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.state import LocalWorkers, State
from tests.launcher.protocol.states import ALONE, FAILURE, PAIR, connected, peer, ready

LIMITS = Limits(max_nodes=3)
TRAINING = LocalWorkers(PAIR.identity, "running", lowest=7, highest=8, per_second=2.0)


def test_a_failure_here_goes_before_what_is_heard_of_others() -> None:
    """The node that saw the worker fail knows its rank and exit code."""
    state = connected(LIMITS, PAIR, replace(peer("n1", "member"), presence="ended"), phase="running")
    failed = replace(state, workers=replace(TRAINING, failure=FAILURE))
    broken, lost = change.break_up(failed, 0.0), change.break_up(state, 0.0)

    assert broken is not None
    assert lost is not None
    assert (broken.phase, broken.cause) == ("broken", FAILURE)
    assert (lost.cause and lost.cause.kind, lost.cause and lost.cause.uuid) == ("node_lost", "n1")


def test_a_failure_beside_a_crash_is_the_crash() -> None:
    """A connection ended and a collective failed here: together that is a lost node, at once. Alone neither is."""
    away = replace(peer("n1", "member"), presence="disconnected")
    state = connected(LIMITS, PAIR, away, phase="running")
    broken = change.break_up(replace(state, workers=replace(TRAINING, failure=FAILURE)), 0.0)

    assert broken is not None
    assert (broken.cause and broken.cause.kind, broken.cause and broken.cause.uuid) == ("node_lost", "n1")
    assert change.break_up(state, LIMITS.reconnect_wait - 0.1) is None
    assert change.break_up(state, LIMITS.reconnect_wait) is not None


def settled(state: State, event: events.Event, now: float) -> State:
    """The state after an event, once the store has taken the changes of the generation that it leads to."""
    state, orders = machine.step(state, event, now)
    for order in orders:
        if isinstance(order, actions.CompareAndSet):
            state = settled(state, events.GenerationSeen(order.generation, order.version + 1), now)
            state = settled(state, events.CompareAndSetDone(succeeded=True), now)
    return state


@pytest.mark.parametrize(
    "forgets",
    [
        (events.PeerForgotten("n1"),),
        (events.StoreLost(fresh=True), events.StoreConnected("reborn", None, 0, (), None)),
    ],
    ids=["after minutes", "reborn"],
)
def test_a_member_that_finished_is_no_loss_once_the_store_forgets_it(forgets: tuple[events.Event, ...]) -> None:
    """The store keeps the record of a node that ended for minutes; its peer may export for hours."""
    state = connected(LIMITS, PAIR, peer("n1", "finished"), phase="running")
    for event in (events.PeerSeen(replace(peer("n1", "finished"), presence="ended")), *forgets):
        state = settled(state, event, 1.0)
    state = settled(state, events.Tick(), 1000.0)

    assert state.store.peer("n1") is None
    assert state.generation is not None
    assert (state.generation.phase, state.generation.finished) == ("running", ("n1",))


def test_the_record_keeps_no_finish_of_a_member_that_answers() -> None:
    """At the end of a job all finish within moments, and the record need not change for each."""
    assert change.keep_finish(connected(LIMITS, PAIR, peer("n1", "finished"), phase="running"), 1.0) is None


@pytest.mark.parametrize("state", ["member", "finished"])
def test_nothing_breaks_while_members_train_or_have_finished(state: str) -> None:
    """A member that finished by itself loses nothing by going."""
    assert change.break_up(connected(LIMITS, PAIR, peer("n1", state), phase="running"), 0.0) is None


def test_only_a_member_breaks_a_generation() -> None:
    """A newcomer sees a lost member and leaves the change to the members."""
    others = replace(PAIR, members=PAIR.members[1:])

    assert change.break_up(connected(LIMITS, others), 0.0) is None


@pytest.mark.parametrize(("highest", "phase", "stop_step"), [(None, "draining", None), (8, "proposed", 9)])
def test_a_leaving_member_ends_it_by_step_or_by_signal(highest: int | None, phase: str, stop_step: int | None) -> None:
    """Members agree on a step that no worker has reached; a script that reports none gets SIGTERM."""
    state = connected(replace(LIMITS, stop_step_lead=0.0), PAIR, peer("n1", "member", leaving=True))
    proposed = change.propose(replace(state, workers=replace(TRAINING, highest=highest)), 1000.0)

    assert proposed is not None
    assert (proposed.phase, proposed.stop_step, proposed.cause and proposed.cause.kind) == (phase, stop_step, "leaving")


@pytest.mark.parametrize(("members", "ahead"), [(2, 1 + 2), (400, 1 + 6), (4000, 1 + 10)])
def test_few_nodes_agree_on_a_step_that_is_near(members: int, ahead: int) -> None:
    """A newcomer waits for the step, so that it lies no further ahead than so many nodes need to agree."""
    many = replace(PAIR, members=(*PAIR.members, *(replace(PAIR.members[0], uuid=f"{n}") for n in range(2, members))))
    state = connected(LIMITS, many, peer("n1", "member", leaving=True))
    proposed = change.propose(replace(state, workers=replace(TRAINING, per_second=10.0)), 0.0)

    assert proposed is not None
    assert proposed.stop_step == 8 + ahead


def test_a_step_that_came_too_soon_is_raised_by_the_whole_lead() -> None:
    """The agreement took longer than was thought, and once more would cost a second round."""
    shown = replace(TRAINING, stop_step=9, highest=9, per_second=10.0)
    state = connected(LIMITS, replace(PAIR, phase="proposed", stop_step=9), peer("n1", "member", accepted=9))
    raised = change.agree(replace(state, workers=shown), 0.0)

    assert raised is not None
    assert raised.stop_step == 9 + 1 + 10


def test_a_newcomer_ends_it_where_there_is_a_place() -> None:
    """One that is ready, in a generation that is not full."""
    workers = replace(TRAINING, identity=ALONE.identity)
    state = replace(connected(LIMITS, ALONE, ready("n1")), workers=workers)
    proposed = change.propose(state, 1000.0)

    assert proposed is not None
    assert proposed.cause is not None
    assert (proposed.cause.kind, proposed.cause.uuid) == ("scale_up", "n1")
    assert change.propose(replace(state, limits=Limits(max_nodes=1)), 1000.0) is None


def test_the_step_holds_once_all_accept_it() -> None:
    """Before the last member has accepted nothing changes; a node that is past the step raises it."""
    proposal = replace(PAIR, phase="proposed", stop_step=9)
    shown = replace(TRAINING, stop_step=9)
    accepted = replace(shown, accepted=9)
    waiting = connected(LIMITS, proposal, peer("n1", "member"))
    agreed = connected(LIMITS, proposal, peer("n1", "member", accepted=9))
    holds = change.agree(replace(agreed, workers=accepted), 0.0)
    raised = change.agree(replace(agreed, workers=replace(shown, highest=9)), 0.0)

    assert change.agree(replace(waiting, workers=accepted), 0.0) is None
    assert holds is not None
    assert (holds.phase, holds.stop_step) == ("draining", 9)
    assert raised is not None
    assert raised.stop_step is not None
    assert (raised.phase, raised.stop_step > 9) == ("proposed", True)


def test_a_peer_that_says_why_it_stopped_is_not_lost() -> None:
    """Its record may come before its own change of the generation; the failure is charged as if it had been later."""
    failed = connected(LIMITS, PAIR, peer("n1", "stopped", failure="1 AssertionError"), phase="running")
    broken = change.break_up(failed, 0.0)
    left = change.break_up(connected(LIMITS, PAIR, peer("n1", "stopped", leaving=True), phase="running"), 0.0)

    assert broken is not None
    assert broken.cause is not None
    assert (broken.cause.kind, broken.cause.uuid) == ("worker_failed", "n1")
    assert left is not None
    assert left.cause is not None
    assert left.cause.kind == "leaving"
