"""Workers on standby: when a newcomer starts them, what it says meanwhile, and when they are ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import actions, events, machine
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Generation, Master, Member
from elastic_infra.launcher.protocol.state import NOWHERE, LocalWorkers, State, record
from tests.launcher.protocol.states import INCARNATION, connected, peer

LIMITS = Limits(max_nodes=2, max_restarts=3, join_timeout=900.0)
THEIRS = Generation(3, members=(Member("n1", "n1", 4),), incarnation=INCARNATION, revision=1, attempt=2)
OURS = replace(THEIRS, number=4, members=(*THEIRS.members, Member("n0", "n0", 1)), revision=2)


def newcomer(generation: Generation = THEIRS, *, can_move: bool = True) -> State:
    """Node n0, ready beside a generation of n1's."""
    return connected(LIMITS, generation, peer("n1", "member", THEIRS, can_move=can_move))


def on_standby(phase: str = "parking", **more: object) -> State:
    """The same node with workers on standby."""
    workers = LocalWorkers(NOWHERE, phase, stop_by=600.0)  # type: ignore[arg-type]  # a phase
    workers = replace(workers, **more)  # type: ignore[arg-type]  # its fields
    return replace(newcomer(), workers=workers)


def ordered(state: State, event: events.Event, now: float) -> tuple[State, list[actions.Action]]:
    """A step, with the orders about workers."""
    kinds = (actions.PrepareWorkers, actions.StartWorkers, actions.StopWorkers, actions.KillWorkers)
    after, done = machine.step(state, event, now)
    return after, [action for action in done if isinstance(action, kinds)]


def test_a_newcomer_starts_its_workers_before_it_says_ready() -> None:
    """Their place is behind all members; once all have parked, the node is ready."""
    loading, orders = ordered(newcomer(), events.Tick(), 1.0)
    loaded, _ = ordered(loading, events.WorkerParked(0, 0), 2.0)

    assert [order.place for order in orders if isinstance(order, actions.PrepareWorkers)] == [
        actions.StartWorkers(4, 3, 0, 4, 1, 5, 1, 2, "", 0, None)
    ]
    assert (record(loading).state, record(loaded).state) == ("warming", "ready")


@pytest.mark.parametrize(
    "state",
    [
        newcomer(can_move=False),
        newcomer(replace(THEIRS, phase="proposed")),
        newcomer(replace(THEIRS, finishing=True)),
        newcomer(replace(THEIRS, evicted="n0")),
        replace(newcomer(), ready=False),
        replace(newcomer(), standby_failed=True),
    ],
    ids=["cannot move", "ends", "is finishing", "evicted", "not ready", "failed before"],
)
def test_no_workers_wait_where_they_are_of_no_use(state: State) -> None:
    """Where the job's workers cannot be moved a newcomer is started with its generation."""
    assert ordered(state, events.Tick(), 1.0)[1] == []


@pytest.mark.parametrize("mode", ["move", "restart"])
def test_workers_on_standby_enter_whatever_the_others_do(mode: str) -> None:
    """They belong to no process group, so they need not be started anew where the others are."""
    state = on_standby("parked", parked=(0,))
    state, _ = ordered(state, events.GenerationSeen(replace(OURS, mode=mode), 2), 1.0)  # type: ignore[arg-type]
    _, orders = ordered(state, events.MasterSeen(_master()), 2.0)

    assert [order.kept for order in orders if isinstance(order, actions.StartWorkers)] == [(0,)]


def test_workers_that_are_never_ready_are_killed_and_started_as_on_any_node() -> None:
    """The deadline is that of a start of which nothing is known; a node of which no worker is left is ready."""
    early, late = (ordered(on_standby(), events.Tick(), now) for now in (599.0, 601.0))
    killed, orders = ordered(late[0], events.WorkerExited(0, 0, -9), 602.0)
    gone, again = ordered(killed, events.WorkersGone(0, orphaned=False), 603.0)

    assert early[1] == []
    assert late[1] == [actions.KillWorkers(0, (0,))]
    assert [type(order) for order in orders] == [actions.StopWorkers]
    assert (gone.workers, again, record(gone).state) == (None, [], "ready")


@pytest.mark.parametrize("patience", [0.0, 30.0])
def test_a_short_patience_of_newcomers_does_not_end_their_workers(patience: float) -> None:
    """It bounds the wait for workers that may hang: those on standby, which nobody waits for, have time to import."""
    impatient = replace(newcomer(), limits=replace(LIMITS, startup_patience=patience))
    loading, _ = ordered(impatient, events.Tick(), 1.0)
    _, orders = ordered(loading, events.Tick(), 599.0)

    assert orders == []


def test_a_worker_that_fails_on_standby_is_no_failure_of_the_job() -> None:
    """It is started again with the generation that its node enters."""
    state, _ = ordered(on_standby(), events.WorkerExited(0, 0, 1, "ImportError"), 1.0)

    assert state.workers is not None
    assert (state.workers.failure, record(state).failure) == (None, "")


def test_a_generation_that_begins_before_they_are_ready_does_not_wait_for_them() -> None:
    """They are killed, so that the node's workers start at once."""
    _, orders = ordered(on_standby(), events.GenerationSeen(OURS, 2), 1.0)

    assert [(order.first, order.grace_seconds) for order in orders if isinstance(order, actions.StopWorkers)] == [
        ("SIGKILL", 0.0)
    ]


@pytest.mark.parametrize(
    ("event", "now"),
    [
        (events.SignalSeen(15), 1.0),
        (events.GenerationSeen(replace(THEIRS, phase="final", exit_code=0, revision=2), 2), 1.0),
    ],
    ids=["told to end", "the job is over"],
)
def test_workers_on_standby_are_dismissed(event: events.Event, now: float) -> None:
    """The node leaves once they are gone."""
    state, orders = ordered(on_standby("parked", parked=(0,)), event, now)
    after, done = machine.step(state, events.WorkersGone(0, orphaned=False), now + 1)

    assert [order.first for order in orders if isinstance(order, actions.StopWorkers)] == ["SIGTERM"]
    assert after.exited
    assert [action.code for action in done if isinstance(action, actions.Exit)] in ([143], [0])


def test_workers_on_standby_do_not_prolong_the_wait_for_a_generation() -> None:
    """Where no generation can need them for ``join_timeout``, they end, and the node with them."""
    lost = replace(on_standby("parked", parked=(0,)), idle_since=None)
    idle, _ = ordered(lost, events.StoreLost(fresh=False), 10.0)
    state, orders = ordered(idle, events.Tick(), 911.0)
    _, done = machine.step(state, events.WorkersGone(0, orphaned=False), 912.0)

    assert [type(order) for order in orders] == [actions.StopWorkers]
    assert [action.code for action in done if isinstance(action, actions.Exit)] == [200]


def _master() -> Master:
    return Master(4, INCARNATION, "host1", 4000)
