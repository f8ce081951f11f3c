"""A node whose worker ended steps back: when the others go on without it, and how it comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import actions, commit, events, machine
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Budget, Cause, Generation, Master, Member
from elastic_infra.launcher.protocol.state import NOWHERE, LocalWorkers, State, record
from tests.launcher.protocol.states import FAILURE, INCARNATION, PAIR, connected, peer

LIMITS = Limits(max_nodes=3, max_restarts=3)
BROKEN = replace(
    PAIR,
    phase="broken",
    next_mode="move",
    cause=FAILURE,
    members=(*PAIR.members, Member("n2", "n2", 1)),
)
PARKED = LocalWorkers(BROKEN.identity, "parked", parked=(0, 1), startup_seconds=9, per_second=2.0)
WITHOUT = replace(PAIR, number=2, mode="move", members=(Member("n1", "n1", 1),), stepped_back=("n0",), revision=2)


def ended(limits: Limits = LIMITS, generation: Generation = BROKEN, workers: LocalWorkers = PARKED) -> State:
    """Node n0 has parked, as n2 has; a worker of n1 ended."""
    others = (peer("n1", "stopped", generation), peer("n2", "parked", generation, startup_seconds=9))
    return replace(connected(limits, generation, *others), workers=workers)


def members_after(state: State) -> tuple[list[str], tuple[str, ...]]:
    """The members of the next generation, and the nodes that stepped back."""
    after = commit.commit(state, 0.0)
    assert after is not None
    return [member.uuid for member in after.members], after.stepped_back


def test_the_others_go_on_without_the_node_whose_worker_ended() -> None:
    """In place and at once; the failure is charged as any other."""
    after = commit.commit(ended(), 0.0)

    assert after is not None
    assert (after.mode, after.charged, after.budget.charged) == ("move", True, 1)
    assert members_after(ended()) == (["n0", "n2"], ("n1",))
    assert members_after(ended(workers=replace(PARKED, per_second=0.3))) == (["n0", "n2"], ("n1",))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ended(replace(LIMITS, min_nodes=3)), "too few"),
        (ended(replace(LIMITS, node_unit=3)), "no whole unit"),
        (ended(replace(LIMITS, world_sizes=(1, 3), min_nodes=2)), "no world size"),
        (ended(generation=replace(BROKEN, finishing=True)), "the job is about to end"),
        (ended(workers=replace(PARKED, per_second=0.1)), "a start takes less than a step"),
        (ended(generation=replace(BROKEN, next_mode="restart")), "all start anew"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_all_wait_for_the_killed_worker(state: State, reason: str) -> None:
    """As in any other change."""
    del reason

    assert members_after(state)[1] == ()
    assert set(members_after(state)[0]) == {"n0", "n1", "n2"}


def test_all_wait_where_no_step_was_made() -> None:
    """The nodes that remain may have no state yet; and of two failures in a row the second is waited for."""
    others = (peer("n1", "stopped", BROKEN), peer("n2", "parked", BROKEN))
    state = replace(connected(LIMITS, BROKEN, *others), workers=replace(PARKED, startup_seconds=None))

    assert members_after(state) == (["n0", "n2", "n1"], ())


def test_a_node_that_lacks_one_of_its_workers_steps_back() -> None:
    """Its other workers have parked, and its record says that they are not all."""
    incomplete = replace(PARKED, exits=((1, -9, False),))
    others = (peer("n1", "parked", BROKEN, incomplete=True), peer("n2", "parked", BROKEN, startup_seconds=9))

    assert record(ended(workers=incomplete)).incomplete
    assert not record(ended()).incomplete
    assert members_after(replace(connected(LIMITS, BROKEN, *others), workers=PARKED)) == (["n0", "n2"], ("n1",))


def test_a_node_beyond_a_whole_unit_keeps_its_workers() -> None:
    """Where it has no place it is named too, so that it comes back with the one that lacks a worker."""
    generation = replace(BROKEN, members=(*BROKEN.members, Member("n3", "n3", 1)))
    others = (*(peer(f"n{i}", "parked", generation, startup_seconds=9) for i in (1, 2)), peer("n3", "stopped"))
    state = connected(replace(LIMITS, max_nodes=4, node_unit=2), generation, *others)

    assert members_after(replace(state, workers=PARKED)) == (["n0", "n1"], ("n2", "n3"))


def stepped_back(*ends: tuple[int, int, bool]) -> State:
    """Node n0 of two workers, of which those in ``ends`` have ended; n1 trains on."""
    parked = tuple(rank for rank in (0, 1) if rank not in {end[0] for end in ends})
    workers = LocalWorkers(PAIR.identity, "parked" if parked else "stopped", parked=parked, exits=ends)
    state = replace(connected(LIMITS, PAIR, peer("n1", "member", WITHOUT)), workers=replace(workers, failure=FAILURE))
    return replace(state, node=replace(state.node, local_world_size=2))


def test_parked_workers_wait_beside_those_that_start() -> None:
    """The node says ready once the new worker is; then all of them enter, and take the state from the others."""
    state, orders = machine.step(stepped_back((1, -9, False)), events.GenerationSeen(WITHOUT, 2), 1.0)
    ready, _ = machine.step(state, events.WorkerParked(0, 1), 2.0)
    again = replace(WITHOUT, number=3, members=(Member("n1", "n1", 1), Member("n0", "n0", 2)), stepped_back=())
    member, _ = machine.step(ready, events.GenerationSeen(again, 3), 3.0)
    _, entered = machine.step(member, events.MasterSeen(Master(3, INCARNATION, "host1", 4000)), 3.0)

    assert [order.kept for order in orders if isinstance(order, actions.PrepareWorkers)] == [(0,)]
    assert not [order for order in orders if isinstance(order, actions.StopWorkers)]
    assert state.workers is not None
    assert (state.workers.identity, record(state).state, record(ready).state) == (NOWHERE, "warming", "ready")
    starts = [order for order in entered if isinstance(order, actions.StartWorkers)]
    assert [(order.kept, order.behind) for order in starts] == [((0, 1), True)]


def test_a_node_without_workers_starts_them_before_any_member_can_move() -> None:
    """It is never ready without them, so that no change is made for a node that all have to wait for."""
    state, orders = machine.step(stepped_back((0, -9, False), (1, -9, False)), events.GenerationSeen(WITHOUT, 2), 1.0)

    assert [order.kept for order in orders if isinstance(order, actions.PrepareWorkers)] == [()]
    assert record(state).state == "warming"


@pytest.mark.parametrize(
    "later",
    [replace(WITHOUT, stepped_back=()), replace(WITHOUT, finishing=True), replace(WITHOUT, phase="final", exit_code=0)],
    ids=["taken for lost", "is finishing", "over"],
)
def test_parked_workers_end_where_they_are_of_no_use(later: Generation) -> None:
    """The job goes on without this node, or not at all."""
    _, orders = machine.step(stepped_back((1, -9, False)), events.GenerationSeen(later, 2), 1.0)

    assert [type(order) for order in orders if isinstance(order, actions.PrepareWorkers | actions.StopWorkers)] == [
        actions.StopWorkers
    ]


@pytest.mark.parametrize(
    ("presence", "since", "leaving", "now", "given"),
    [
        ("disconnected", 11.0, False, 12.5, True),
        ("disconnected", 11.0, False, 11.5, False),
        ("disconnected", 13.0, False, 14.5, False),
        ("ended", 9.0, False, 10.0, True),
        ("silent", 11.5, False, 30.0, True),
        ("live", 0.0, True, 11.0, True),
        ("live", 0.0, True, 13.0, False),
        ("live", 0.0, False, 11.0, False),
    ],
)
def test_the_charge_of_a_node_that_is_lost_a_moment_later_is_given_back(
    presence: str, since: float, leaving: bool, now: float, given: bool
) -> None:
    """The end of its worker was the first sign of its own: both are one loss, which costs no restart."""
    budget = Budget(restarts=1, charged=1, culprit="n1")
    charged = replace(WITHOUT, charged=True, budget=budget, members=PAIR.members[:1], stepped_back=("n1",))
    lost = replace(peer("n1", "warming", BROKEN, leaving=leaving), presence=presence, since=since)  # type: ignore[arg-type]  # a presence
    state = replace(connected(LIMITS, charged, lost, phase="running"), committed_since=10.0)

    after = commit.give_back(state, now)
    assert (after is not None) == given
    if after is not None:
        assert (after.identity, after.phase) == (charged.identity, "running")
        assert (after.budget.restarts, after.budget.charged, after.charged) == (0, 0, False)
        assert commit.give_back(replace(state, store=replace(state.store, generation=after)), now) is None


@pytest.mark.parametrize(
    "generation",
    [
        replace(WITHOUT, charged=True, budget=Budget(culprit="n2")),
        replace(WITHOUT, charged=False, budget=Budget(culprit="n1")),
        replace(WITHOUT, charged=True, budget=Budget(culprit="n1"), incarnation="before"),
    ],
    ids=["of another node", "given back", "in a store before"],
)
def test_no_other_charge_is_given_back(generation: Generation) -> None:
    """Only that of the last failure, while it is known when the node was lost."""
    generation = replace(generation, members=PAIR.members[:1], stepped_back=("n1",))
    lost = replace(peer("n1", "warming", BROKEN), presence="ended")

    assert commit.give_back(connected(LIMITS, generation, lost, phase="running"), 0.0) is None


def test_the_log_and_the_events_name_the_node() -> None:
    """Readers see why the job is smaller for a while."""
    state = replace(connected(LIMITS, BROKEN, peer("n1", "stopped", BROKEN)), seen=(BROKEN.identity, "broken"))
    after = replace(WITHOUT, members=PAIR.members[:1], stepped_back=("n1",), cause=Cause("worker_failed", "n1", "n1"))
    named = replace(peer("n1", "stopped", BROKEN), record=replace(peer("n1", "stopped", BROKEN).record, name="pod-1"))
    state = replace(state, store=replace(state.store, peers=(named,)))
    _, done = machine.step(state, events.GenerationSeen(after, 2), 1.0)

    told = [action.line for action in done if isinstance(action, actions.Tell)]
    changes = [action for action in done if isinstance(action, actions.Emit) and action.event == "membership_change"]
    assert any(line.endswith("Node pod-1 steps back while its workers start.") for line in told)
    assert [("stepped_back", "pod-1") in change.fields for change in changes] == [True]
