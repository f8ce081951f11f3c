"""Workers that keep their processes: how a change is attempted, which workers park, and which go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastic_infra.launcher.protocol import actions, change, commit, events, group, machine, move
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Cause, Generation
from elastic_infra.launcher.protocol.state import NOWHERE, LocalWorkers, State, record
from tests.launcher.protocol.states import FAILURE, PAIR, connected, peer
from tests.launcher.protocol.test_machine import of_kind

LIMITS = Limits(max_nodes=2, max_restarts=3, shutdown_grace=30.0, failure_grace=5.0)
LOSS = Cause("node_lost", "n1", "n1")
RUNNING = LocalWorkers(PAIR.identity, "running", can_move=True)
MOVING = replace(PAIR, phase="broken", next_mode="move", cause=LOSS)


def member(generation: Generation = PAIR, workers: LocalWorkers = RUNNING, **said: object) -> State:
    """The state of node n0 of two with these workers; ``said`` is the record of n1."""
    state = connected(LIMITS, generation, peer("n1", "member", generation, **said))
    return replace(state, workers=workers)


@pytest.mark.parametrize(
    ("mine", "theirs", "cause", "expected"),
    [
        (True, True, LOSS, "move"),
        (False, True, LOSS, "move"),
        (False, False, LOSS, "restart"),
        (True, True, replace(LOSS, kind="hang"), "restart"),
    ],
)
def test_a_change_is_attempted_as_a_move_where_a_worker_can_move(
    mine: bool, theirs: bool, cause: Cause, expected: str
) -> None:
    """One such worker is enough, since it has the state; after a hang all workers are started anew."""
    state = member(workers=replace(RUNNING, can_move=mine), can_move=theirs)

    assert move.mode_of_change(state, PAIR, cause, 0.0) == expected


@pytest.mark.parametrize(
    ("mine", "said", "expected"),
    [
        (True, {"can_move": True, "leaving": True}, "whole"),
        (True, {"can_move": False}, "whole"),
        (True, {"can_move": True}, "nothing"),
        (False, {"can_move": True, "leaving": True}, "nothing"),
    ],
)
def test_the_last_member_with_the_state_saves_it(mine: bool, said: dict[str, Any], expected: str) -> None:
    """Where another member has the state and goes on, the workers of a node that leaves save nothing."""
    state = replace(member(MOVING, **said), leaving_since=1.0 if mine else None)

    assert move.saves(state, 2.0) == expected


def test_a_newcomer_without_the_state_keeps_no_other_node_from_saving() -> None:
    """It can be moved, and would go on from an older state."""
    state = replace(member(MOVING, can_move=True, behind=True), leaving_since=1.0)

    assert not move.goes_on(state, MOVING, 2.0)
    assert move.saves(state, 2.0) == "whole"


def test_workers_on_standby_have_the_state_once_they_are_in_a_group() -> None:
    """A node's record says so from the moment at which the node is a member, also where that generation ended early."""
    standby = LocalWorkers(NOWHERE, "parked", parked=(0,))
    entering = move.carried_over(standby, PAIR, 1.0)
    running = replace(entering, phase="running")
    inside, _ = machine.step(member(workers=running), events.WorkersIn(PAIR.number, can_move=True), 2.0)
    again = move.carried_over(move.parked_again(entering), replace(PAIR, number=2), 2.0)

    assert [record(member(workers=each)).behind for each in (entering, running, again)] == [True] * 3
    assert not record(inside).behind


def test_the_last_node_with_the_state_leaves_once_a_newcomer_has_it() -> None:
    """No change is proposed before: a newcomer gets the state within its first moments. Then both agree on a step."""
    leaving = replace(member(can_move=True, behind=True), leaving_since=1.0)
    told = replace(leaving, workers=replace(RUNNING, highest=5))
    has_it = replace(told, store=member(can_move=True).store)

    assert change.propose(leaving, 2.0) is None
    assert change.propose(told, 2.0) is None
    proposed = change.propose(has_it, 2.0)
    assert proposed is not None
    assert proposed.phase == "proposed"


def test_all_save_their_part_where_all_leave_at_an_agreed_step() -> None:
    """The other node was told to end after the proposal: the agreement lowers the change to a restart."""
    agreed = replace(PAIR, phase="proposed", stop_step=5, next_mode="move")
    accepting = replace(RUNNING, stop_step=5, accepted=5, highest=4)
    told = replace(member(agreed, accepting, accepted=5, can_move=True, leaving=True), leaving_since=1.0)
    draining = change.agree(told, 2.0)
    stays = change.agree(replace(told, leaving_since=None), 2.0)

    assert draining is not None
    assert stays is not None
    assert (draining.phase, draining.next_mode, stays.next_mode) == ("draining", "restart", "move")
    assert move.saves(replace(told, store=replace(told.store, generation=draining)), 3.0) == "part"


def test_parked_workers_of_the_last_node_save_before_they_end() -> None:
    """Too few nodes are left, and then the last is told to end: its workers get a message and no signal.

    The order waits until the store has heard that this node leaves, and nothing later overrides the order.
    """
    lost = replace(peer("n1", "member", can_move=True), presence="silent")
    state = replace(connected(LIMITS, MOVING, lost), workers=replace(RUNNING, phase="parked", parked=(0,)))
    told = replace(state, leaving_since=1.0)
    heard = replace(told, store=replace(told.store, peers=(peer("n0", "parked", leaving=True), lost)))
    saving, orders = group.stop(heard, 1.0)

    assert group.stop(told, 1.0)[1] == ()
    assert orders == (actions.StopWorkers(PAIR.number, 30.0, "none", "this node was told to end", "whole"),)
    assert group.stop(saving, 20.0)[1] == ()


def test_workers_that_parked_have_not_finished() -> None:
    """They exit 0 after their last save although a stop step lay ahead, and the job goes on later."""
    dismissed = replace(RUNNING, phase="stopping", told=True, parked=(0,), stop_step=9, stop_step_agreed=True)
    ended, _ = machine.step(member(MOVING, dismissed), events.WorkerExited(PAIR.number, 0, 0), 1.0)
    gone, _ = machine.step(ended, events.WorkersGone(PAIR.number, orphaned=False), 2.0)

    assert gone.workers is not None
    assert gone.workers.phase == "stopped"


def test_two_failed_moves_in_a_row_start_all_anew() -> None:
    """A move has failed that ends before a step; a step forgives."""
    moved = replace(PAIR, mode="move", failed_moves=1)

    assert move.mode_of_change(member(moved), moved, LOSS, 0.0) == "restart"
    assert move.mode_of_change(member(moved, startup_seconds=1), moved, LOSS, 0.0) == "move"
    assert move.failed_moves(member(moved), moved, 0.0) == 2


def test_workers_park_when_the_generation_breaks_and_the_late_are_killed() -> None:
    """The workers are told once; a node of two workers has parked when one has parked and the other is killed."""
    state = member(MOVING)
    state = replace(state, node=replace(state.node, local_world_size=2))
    told, first = move.park(state, 10.0)
    assert told.workers is not None
    _, nothing = move.park(told, 12.0)
    one, _ = machine.step(told, events.WorkerParked(PAIR.number, 1), 12.0)
    late, orders = move.park(one, 16.0)
    gone, _ = machine.step(late, events.WorkerExited(PAIR.number, 0, -9), 17.0)

    assert first == (actions.ParkWorkers(PAIR.number),)
    assert nothing == ()
    assert orders == (actions.KillWorkers(PAIR.number, (0,)),)
    assert move.park(late, 18.0)[1] == ()
    assert gone.workers is not None
    assert (gone.workers.phase, gone.workers.failure, record(gone).state) == ("parked", None, "parked")


def test_a_worker_that_cannot_park_is_not_waited_for() -> None:
    """It says so itself; its siblings keep their time, and one that was told nothing has none to lose."""
    state = member(MOVING)
    state = replace(state, node=replace(state.node, local_world_size=2))
    told, _ = move.park(state, 10.0)
    stuck, orders = machine.step(told, events.WorkerStuck(PAIR.number, 0), 10.5)
    parked, _ = machine.step(stuck, events.WorkerParked(PAIR.number, 0), 10.6)
    untold, nothing = machine.step(member(), events.WorkerStuck(PAIR.number, 0), 10.5)

    assert of_kind(orders, actions.KillWorkers) == [actions.KillWorkers(PAIR.number, (0,))]
    assert parked.workers is not None
    assert (parked.workers.phase, parked.workers.parked, parked.workers.killed) == ("parking", (), (0,))
    assert untold.workers is not None
    assert (untold.workers.stuck, of_kind(nothing, actions.KillWorkers)) == ((), [])


@pytest.mark.parametrize(("step_seconds", "seconds"), [(0.0, 5.0), (0.5, 5.0), (10.0, 30.0)])
def test_a_worker_has_the_time_of_three_steps_to_park(step_seconds: float, seconds: float) -> None:
    """It sees the end of its generation after its computation, which may take nearly a step; five seconds at least.

    What a step takes is known in the next generation too, before its workers have made one.
    """
    running, _ = machine.step(member(), events.StepsSeen(PAIR.number, 7, 7, 0.5, step_seconds), 1.0)
    assert running.workers is not None
    moved = move.carried_over(replace(running.workers, phase="parked", parked=(0,)), PAIR, 2.0)
    moved = replace(moved, phase="running", kept=())
    for workers in (running.workers, moved):
        told, _ = move.park(member(MOVING, workers), 10.0)

        assert told.workers is not None
        assert told.workers.stop_by == 10.0 + seconds
        assert workers.per_second == 0.5


def test_a_worker_that_is_being_killed_has_not_parked() -> None:
    """Were it counted, its end would be a failure in the generation that its node has entered meanwhile."""
    late = replace(RUNNING, phase="parking", told_to_park=True, killed=(0,))
    state, _ = machine.step(member(MOVING, late), events.WorkerParked(PAIR.number, 0), 16.0)

    assert state.workers is not None
    assert (state.workers.phase, state.workers.parked) == ("parking", ())


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("running", "hang"), ("parking", None), ("parked", None), ("preparing", None), ("stopping", None)],
)
def test_no_worker_hangs_while_its_node_goes_from_one_generation_to_the_next(phase: Any, expected: str | None) -> None:
    """The move has deadlines of its own, and a worker that waits for its peers is not at fault."""
    state = member(workers=replace(RUNNING, phase=phase, parked=(0,), kept=(0,)), can_move=True)
    seen, _ = machine.step(state, events.HangSeen(PAIR.number, 0, "silent"), 1.0)

    assert seen.workers is not None
    assert (seen.workers.failure and seen.workers.failure.kind) == expected


def test_a_node_that_cannot_move_is_stopped_in_the_same_change() -> None:
    """Its workers still load."""
    state = member(MOVING, replace(RUNNING, can_move=False))

    assert move.park(state, 0.0) == (state, ())
    assert [type(order) for order in group.stop(state, 0.0)[1]] == [actions.StopWorkers]


def test_siblings_of_a_failed_worker_are_not_stopped() -> None:
    """They wait for the generation to be broken up, and then park."""
    state = member(workers=replace(RUNNING, failure=replace(FAILURE, uuid="n0"), exits=((0, 1, False),)), can_move=True)
    state = replace(state, node=replace(state.node, local_world_size=2))
    broken = change.break_up(state, 0.0)

    assert group.stop(state, 0.0)[1] == ()
    assert broken is not None
    assert (broken.phase, broken.next_mode) == ("broken", "move")


def test_parked_workers_enter_the_next_generation_and_missing_ones_are_started() -> None:
    """The order to start names those that live on."""
    parked = replace(RUNNING, phase="parked", parked=(0, 1), exits=((1, -9, False),))
    later = replace(PAIR, number=2, mode="move")
    state = replace(connected(LIMITS, later, peer("n1", "member", later)), workers=parked)
    state = replace(state, node=replace(state.node, local_world_size=2))
    entered, _ = group.enter(state, 1.0)
    assert entered.workers is not None
    started, orders = group.start(replace(entered, workers=replace(entered.workers, port=4000)), 2.0)

    assert (entered.workers.phase, entered.workers.kept, entered.active) == ("preparing", (0,), True)
    assert [order.kept for order in orders if isinstance(order, actions.StartWorkers)] == [(0,)]
    assert started.workers is not None
    assert (started.workers.phase, started.workers.exits, started.workers.kept) == ("running", (), ())


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (replace(PAIR, number=2), "stopped"),
        (replace(PAIR, number=2, mode="move", phase="broken"), "stopped"),
        (replace(PAIR, number=2, mode="move", phase="broken", next_mode="move"), "parked"),
    ],
)
def test_parked_workers_of_a_generation_that_is_over(later: Generation, expected: str) -> None:
    """They stay parked where the next change is a move too, and are stopped where all are started anew."""
    state = replace(connected(LIMITS, later), workers=replace(RUNNING, phase="parked", parked=(0,)))
    entered, _ = group.enter(state, 1.0)
    assert entered.workers is not None
    orders = group.stop(entered, 1.0)[1]

    if expected == "parked":
        assert (entered.workers.phase, entered.workers.identity, orders) == ("parked", later.identity, ())
    else:
        assert entered == state
        assert [type(order) for order in orders] == [actions.StopWorkers]


def test_a_failure_in_the_first_step_after_a_move_comes_after_the_steps_before() -> None:
    """So that it is progress since an earlier failure, and no second one at the same step."""
    parked = replace(RUNNING, phase="parked", parked=(0,), highest=9)
    later = replace(PAIR, number=2, mode="move")
    state = replace(connected(LIMITS, later, peer("n1", "member", later)), workers=parked)
    entered, _ = group.enter(state, 1.0)
    assert entered.workers is not None
    started, _ = group.start(replace(entered, workers=replace(entered.workers, port=4000)), 2.0)
    failed, _ = machine.step(started, events.WorkerExited(2, 0, -9), 3.0)

    assert failed.workers is not None
    assert failed.workers.failure is not None
    assert failed.workers.failure.step == 9


def test_a_broken_step_is_a_failure_only_where_no_loss_explains_it() -> None:
    """Of a peer whose connection ended at once; unexplained after two seconds."""
    state, _ = machine.step(member(can_move=True), events.StepBroke(PAIR.number, 0, "Connection closed"), 10.0)
    crashed = replace(peer("n1", "member", can_move=True), presence="disconnected", since=10.0)
    alone = replace(state, store=replace(state.store, peers=(crashed,)))

    assert change.break_up(state, 11.0) is None
    unexplained, explained = change.break_up(state, 12.5), change.break_up(alone, 10.1)
    assert unexplained is not None
    assert unexplained.cause is not None
    assert (unexplained.cause.kind, unexplained.cause.message) == ("worker_failed", "Connection closed")
    assert explained is not None
    assert explained.cause is not None
    assert (explained.cause.kind, explained.next_mode) == ("node_lost", "move")


def test_the_next_generation_is_a_move_only_where_a_worker_parked() -> None:
    """Nodes with parked workers come first, with any replica index, because rank 0 serves the state."""
    parked = replace(RUNNING, phase="parked", parked=(0,))
    state = replace(connected(LIMITS, MOVING, peer("n1", "stopped", MOVING)), workers=parked)
    after = commit.commit(state, 0.0)
    none = commit.commit(replace(state, workers=replace(RUNNING, phase="stopped")), 0.0)

    assert after is not None
    assert (after.mode, after.next_mode, [member.uuid for member in after.members]) == ("move", "restart", ["n0", "n1"])
    assert none is not None
    assert none.mode == "restart"
