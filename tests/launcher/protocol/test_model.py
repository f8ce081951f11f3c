"""The membership protocol, explored exhaustively: the production machine in every interleaving the model knows."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from typing import Any

import pytest

from elastic_infra.launcher.protocol import (
    apply_event,
    blame,
    change,
    commit,
    events,
    group,
    machine,
    member_status,
    move,
    node_faults,
    ranks,
    standby,
    step_back,
)
from elastic_infra.launcher.protocol.actions import (
    Action,
    CompareAndSet,
    KillWorkers,
    ParkWorkers,
    PrepareWorkers,
    Publish,
    PublishMaster,
    ResumeWorkers,
)
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.member_status import MemberStatus
from elastic_infra.launcher.protocol.records import Generation
from elastic_infra.launcher.protocol.state import LocalWorkers, State, record
from tests.launcher.protocol import checker, laws, world

ALL_FAULTS = frozenset({"crash", "freeze", "cut", "close", "slow", "leave", "fail", "store"})
LIMIT = 400_000
"""Of states: a scenario that ends has fewer."""
FIRST = 50_000
"""The states of a scenario without an end in sight that are visited."""


def scenario(
    kinds: str, faults: int, *, settled: int = 3, nodes: int = 3, nnodes: str = "1:3", **more: object
) -> world.Scenario:
    """A scenario in one line; ``kinds`` is "all" or a list with blanks."""
    low, high = map(int, nnodes.split(":"))
    gap = world.MOMENT / 2
    limits = Limits(low, high, initial_nodes=high, max_restarts=1, join_timeout=1e9, planned_gap=gap)
    limits = limits if more.get("steps") else replace(limits, startup_patience=gap)  # there, no step is ever seen
    own = {name: more.pop(name) for name in ("node_unit", "node_faults", "startup_patience") if name in more}
    limits = replace(limits, **own)  # type: ignore[arg-type]  # numbers
    chosen = ALL_FAULTS if kinds == "all" else frozenset(kinds.split())
    return replace(world.Scenario(limits, faults, chosen, nodes=nodes, settled=settled), **more)  # type: ignore[arg-type]  # its fields


PAIRS = [
    (one, other)
    for one, other in itertools.combinations(sorted(ALL_FAULTS), 2)
    if {one, other} != {"close", "store"}  # known limit: a node that was cut off takes that for the store's end
]
"""Two faults have two kinds at most: pair by pair they are the whole, in pieces that end."""

SCENARIOS = {
    "three nodes come one by one": scenario("", 0, settled=0),
    "a node ends, or a worker fails, among three": scenario("crash leave fail slow", 1),
    "a node that stands still among three": scenario("freeze", 1),
    "a connection among three that something on the way ends": scenario("close", 1),
    "a fault while the third joins": scenario("crash fail slow", 1, settled=2),
    "every interleaving of two nodes and a loss": scenario("crash leave", 1, nodes=2, settled=2, slow=True),
    "the second of two may be lost, both needed": scenario("crash fail", 1, nodes=3, settled=2, nnodes="2:3"),
    "two faults between two nodes": scenario("crash leave fail", 2, nodes=2, settled=2, nnodes="1:2"),
    "a lost store and a crash": scenario("crash store", 2, nodes=2, settled=2, nnodes="1:2"),
    "the end, with a fault": scenario("crash leave", 1, nodes=2, settled=2, finish=True),
    "a third node beyond a whole unit": scenario("crash", 1, settled=2, nnodes="2:4", node_unit=2),
    "a size that the script refuses": scenario("", 0, nodes=2, settled=1, steps=1, bad_sizes=frozenset({2})),
    "a size that the script refuses, and ends slowly": scenario(
        "", 0, nodes=2, settled=1, steps=1, bad_sizes=frozenset({2}), lingers=True
    ),
    "a stop step while the third joins": scenario("", 0, settled=2, steps=1),
    "a stop step when one leaves": scenario("leave", 2, nodes=2, settled=2, steps=1),
    "a connection that something on the way ends": scenario("close", 1, nodes=2, settled=2),
    "a node that is away while another comes": scenario("freeze cut close", 1, nodes=2, settled=1),
    "a launch that is paused, or loses its store": scenario("freeze store", 1, nodes=1, settled=1, nnodes="1:1"),
    "a pod that is made again": scenario("crash leave", 1, settled=2, nnodes="1:2", names=("x", "y", "x")),
    "a pod that is made again beside two others": scenario(
        "crash leave", 1, nodes=4, settled=3, nnodes="1:3", names=("x", "y", "z", "x")
    ),
    "all pods are made again": scenario("crash close", 2, nodes=2, settled=1, names=("x", "x")),
    "two launchers of one name": scenario("crash close freeze", 1, nodes=2, settled=2, names=("x", "x"), beside=True),
    "a namesake joins": scenario("", 0, nodes=2, settled=1, names=("x", "x"), beside=True),
    "two nodes come, and a clock is wrong": scenario("skew", 1, settled=1),
    "a node comes after the end, its clock wrong": scenario("skew", 1, nodes=2, settled=1, finish=True),
    "a node whose launchers end by faults of their own": scenario(
        "", 0, nodes=4, settled=2, nnodes="1:2", names=("x", "y", "y", "y"), faulty="y", node_faults=2
    ),
    "two workers on each of two nodes": scenario("crash fail leave freeze", 1, nodes=2, settled=2, local=2),
    "a stop step for two workers a node": scenario("", 0, nodes=2, settled=1, steps=1, local=2),
    "the end of two workers a node": scenario("crash", 1, nodes=2, settled=2, finish=True, local=2),
}

MOVES = {
    "two that can move, and a loss": scenario("crash", 1, nodes=2, settled=2, steps=1, moves=True),
    "a third joins in place": scenario("", 0, settled=2, steps=1, moves=True),
    "one that can move leaves": scenario("leave", 1, nodes=2, settled=2, steps=1, moves=True),
    "a worker fails among workers that can move": scenario("fail", 1, nodes=2, settled=2, local=2, moves=True),
    "a worker is late to park": scenario("crash", 1, nodes=2, settled=2, local=2, moves=True, late=True),
    "any one fault between two that can move": scenario("all", 1, nodes=2, settled=2, moves=True),
    "the end of two that can move": scenario("crash", 1, nodes=2, settled=2, finish=True, moves=True),
    "another joins in place": scenario("", 0, nodes=2, settled=1, steps=1, moves=True),
    "a newcomer prepares, and a fault": scenario("leave fail", 1, nodes=2, settled=1, moves=True),
    "another joins in place, and newcomers have no patience": scenario(
        "", 0, nodes=2, settled=1, moves=True, startup_patience=0.0
    ),
    "a newcomer takes long to prepare": scenario("", 1, nodes=2, settled=1, moves=True, late=True),
    "a spare beside a full job": scenario("crash", 1, settled=2, nnodes="1:2", moves=True),
    "the end beside a spare": scenario("", 0, nodes=2, settled=1, nnodes="1:1", finish=True, moves=True),
    "the only one that can move leaves": scenario("leave", 1, nodes=1, settled=1, nnodes="1:1", steps=1, moves=True),
    "a worker is killed": scenario("fail", 1, nodes=2, settled=2, steps=1, moves=True),
    "one of two workers is killed": scenario("fail", 1, nodes=2, settled=2, local=2, steps=1, moves=True),
}

ENDING = {("crash", "leave"), ("crash", "slow"), ("leave", "slow")}
"""The pairs of faults that end among three nodes as well."""

DEEP = {
    "two faults between two nodes, or a lost store": scenario(
        "crash leave fail store", 2, nodes=2, settled=2, nnodes="1:2"
    ),
    "a size of three that the script refuses": scenario("", 0, settled=2, steps=1, bad_sizes=frozenset({3})),
    "a frozen node and a lost store": scenario("freeze store", 2, nodes=2, settled=2, nnodes="1:2"),
    "a cut node and a lost store": scenario("cut store", 2, nodes=2, settled=2, nnodes="1:2"),
    "any one fault among three": scenario("all", 1),
    "any one fault while the third joins": scenario("all", 1, settled=2),
    "a stop step when one leaves, at the end": scenario("leave", 1, nodes=2, settled=2, steps=1, finish=True),
    "a stop step when one leaves, late news": scenario("leave slow", 2, nodes=2, settled=2, steps=1),
    **{
        f"two faults between two nodes: {one} or {other}": scenario(f"{one} {other}", 2, nodes=2, settled=2)
        for one, other in PAIRS
    },
    **{f"two faults among three: {one} or {other}": scenario(f"{one} {other}", 2) for one, other in sorted(ENDING)},
    **{
        f"a node comes, its clock may be wrong, and: {kind}": scenario(f"skew {kind}", 2, nodes=2, settled=1)
        for kind in sorted(ALL_FAULTS)
    },
    "any one fault among three that can move": scenario("all", 1, moves=True),
    "any one fault while another joins in place": scenario("all", 1, nodes=2, settled=1, moves=True),
    "one of a newcomer's two workers fails": scenario("fail freeze", 1, nodes=2, settled=1, local=2, moves=True),
    "one that can move leaves, slowly": scenario("leave slow", 2, nodes=2, settled=2, steps=1, moves=True),
    "all that can move leave": scenario("leave", 2, nodes=2, settled=2, steps=1, moves=True),
    "the only one with the state leaves while another joins": scenario(
        "leave", 1, nodes=2, settled=1, steps=1, moves=True
    ),
    "two faults between two that can move": scenario("crash fail store", 2, nodes=2, settled=2, moves=True),
    "one of a newcomer's or its peer's workers is killed": scenario(
        "fail", 1, nodes=2, settled=1, local=2, steps=1, moves=True
    ),
    "every interleaving of two nodes and any fault": scenario("all", 1, nodes=2, settled=2, slow=True),
}

BEYOND = {
    **{
        f"two faults among three: {one} or {other}": scenario(f"{one} {other}", 2)
        for one, other in PAIRS
        if (one, other) not in ENDING
    },
    "any one fault from the very start": scenario("all", 1, settled=0),
    "two faults at the end": scenario("crash leave fail", 2, finish=True),
    "any one fault during a stop": scenario("all", 1, settled=2, steps=1),
    "any one fault while a third joins in place": scenario("all", 1, settled=2, steps=1, moves=True),
    "a worker is killed among three": scenario("fail", 1, steps=1, moves=True),
    "a worker is killed among three, of which two are needed": scenario("fail", 1, nnodes="2:3", steps=1, moves=True),
    "a worker is killed, and a fault between two that can move": scenario(
        "crash fail leave", 2, nodes=2, settled=2, steps=1, moves=True
    ),
    "all that can move leave, with late news": scenario("leave", 2, nodes=2, settled=2, steps=1, moves=True, slow=True),
}
"""Scenarios that nobody has seen the end of."""


def laws_of(explored: world.Scenario) -> tuple[checker.Law, ...]:
    """Those that can be told in this scenario."""
    stepping = (laws.newcomers_wait_for_a_step,) if explored.steps else ()
    sizes = (laws.a_bad_size_ends_nothing,) if explored.bad_sizes else ()
    end = (laws.the_end_stands, laws.a_finish_stands) if explored.finish and "store" not in explored.kinds else ()
    faults = (laws.faults_are_bounded(explored.names, explored.limits.node_faults),) if explored.faulty else ()
    only_leave = explored.moves and explored.steps and explored.kinds == {"leave"}
    saved = (laws.the_last_saves, laws.the_state_survives) if only_leave else ()
    refunded = (laws.a_lost_node_costs_nothing,) if explored.moves and explored.kinds >= {"crash", "fail"} else ()
    return (*laws.ALL, *stepping, *sizes, *end, *faults, *saved, *refunded)


def explore(explored: world.Scenario, limit: int) -> checker.Explored:
    """With all laws; every node, fault and bad size may cost a generation, and a fault one more where it ends."""
    bound = laws.trains_within(explored.nodes + 2 * explored.faults + len(explored.bad_sizes))
    return checker.explore(explored, (*laws_of(explored), bound), laws.is_good, limit)


@pytest.mark.parametrize("name", SCENARIOS | MOVES)
def test_laws_hold_and_no_state_is_stuck(name: str) -> None:
    """In every reachable world the laws hold, and from each a good one is reachable without a further fault."""
    explored = explore((SCENARIOS | MOVES)[name], LIMIT)

    print(f"{name}: {explored}")
    assert explored.good > 0
    assert explored.seconds <= world.MOMENT, "a timer of minutes is waited for where seconds are enough"


@pytest.mark.parametrize(
    "name",
    [
        "two that can move, and a loss",
        "another joins in place",
        "another joins in place, and newcomers have no patience",
        "one that can move leaves",
        "a spare beside a full job",
    ],
)
def test_survivors_keep_their_workers(name: str) -> None:
    """While nodes come, leave or are lost, the workers of the others are started once and then moved.

    Those of a newcomer are started once too, before the others stop for it.
    """
    kept = (laws.survivors_keep_their_workers, laws.newcomers_are_ready)
    checker.explore(MOVES[name], kept, laws.is_good, LIMIT)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", DEEP)
def test_laws_hold_deeper(name: str) -> None:
    """The same with more faults and more freedom."""
    explored = explore(DEEP[name], LIMIT)

    print(f"{name}: {explored}")
    assert explored.good > 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", BEYOND)
def test_laws_hold_in_the_first_states(name: str) -> None:
    """Where nobody has seen the end, the laws hold in the worlds that are fewest steps away."""
    with contextlib.suppress(checker.TooManyError):
        explore(BEYOND[name], FIRST)


Step = tuple[State, tuple[Action, ...]]


def waits_for_nobody(state: State, event: events.Event, now: float) -> Step:
    """The machine itself, which must not ask for a move in which workers of a member have yet to be started.

    Unless too few members have parked with all of their workers, or have made no step.
    """
    after, ordered = machine.step(state, event, now)
    before, wishes = after.generation, [action.generation for action in ordered if isinstance(action, CompareAndSet)]
    for wanted in wishes:
        if before is None or wanted is None or wanted.identity == before.identity or wanted.mode != "move":
            continue
        mine = {peer.record.uuid: peer.record for peer in after.store.peers} | {after.node.uuid: record(after)}
        said = [mine[member.uuid] for member in wanted.members if member.uuid in mine]
        said = [each for each in said if each.identity == before.identity]
        whole = [each for each in said if each.state == "parked" and not each.incomplete]
        enough = after.limits.min_nodes <= len(whole) < len(said)
        if enough and any(each.startup_seconds is not None for each in whole) and not wanted.finishing:
            message = f"generation {wanted.number} waits for workers that have yet to start"
            raise world.BrokenError(message)
    return after, ordered


@pytest.mark.parametrize("name", ["a worker is killed", "one of two workers is killed"])
def test_a_killed_worker_is_not_waited_for(name: str) -> None:
    """The others train on in place, its siblings keep their processes, and its node comes back."""
    explored = replace(MOVES[name], stepper=waits_for_nobody)
    checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_a_killed_worker_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no node steps back, the others wait until the next worker is started."""
    monkeypatch.setattr(step_back, "remaining", lambda *_: ())
    explored = replace(MOVES["a worker is killed"], stepper=waits_for_nobody)

    with pytest.raises(world.BrokenError, match="waits for workers"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_a_state_that_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where newcomers go on before they have made a step, the only node with the state may be the one left out."""

    def whole(_: State, generation: Generation, statuses: tuple[MemberStatus, ...]) -> tuple[MemberStatus, ...]:
        in_place = generation.mode == "move"
        return tuple(each for each in statuses if in_place and each.live and step_back.is_whole(each.live))

    monkeypatch.setattr(step_back, "remaining", whole)
    explored = scenario("fail", 1, nodes=2, settled=1, local=2, steps=1, moves=True)

    with pytest.raises(world.BrokenError, match="gives up the state"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def says_stopped_too_early(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: says that its workers are gone when it has only told them to stop."""
    after, actions = machine.step(state, event, now)
    return after, tuple(
        replace(action, record=replace(action.record, state="stopped"))
        if isinstance(action, Publish) and action.record.state == "draining"
        else action
        for action in actions
    )


def believes_everybody_dead(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: takes a silent node for a dead one at once."""
    if isinstance(event, events.PeerSeen) and event.peer.presence == "silent":
        event = events.PeerSeen(replace(event.peer, presence="ended"))
    return machine.step(state, event, now)


def ignores_failures(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: forgets that a worker failed."""
    if isinstance(event, events.WorkerExited) and event.exit_code != 0:
        return state, ()
    return machine.step(state, event, now)


def takes_the_killed_for_failed(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: hears of the workers that the dead-man timer killed, and not why."""
    return (state, ()) if isinstance(event, events.WorkersSuspended) else machine.step(state, event, now)


def resumes_unasked(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: lets suspended workers go on because their generation stands in an old picture of the store."""
    after, actions = machine.step(state, event, now)
    if isinstance(event, events.WorkersSuspended) and after.workers and group.stands(after):
        resumed = replace(after, workers=replace(after.workers, suspension=""))
        return resumed, (*actions, ResumeWorkers(event.generation))
    return after, actions


def takes_a_disconnected_node_for_dead(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: takes the end of a connection for the end of its node."""
    if isinstance(event, events.PeerSeen) and event.peer.presence == "disconnected":
        event = events.PeerSeen(replace(event.peer, presence="ended"))
    return machine.step(state, event, now)


def meets_once(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: takes a meeting place that it has sent for one that has arrived."""
    after, actions = machine.step(state, event, now)
    if isinstance(event, events.StoreConnected) and event.incarnation == state.store.incarnation:
        actions = tuple(action for action in actions if not isinstance(action, PublishMaster))
    return after, actions


def counts_by_its_own_clock(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: takes its own clock for the store's."""
    if isinstance(event, events.StoreConnected):
        event = replace(event, unix_time=state.node.joined / 1000)
    return machine.step(state, event, now)


def charges_membership(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: takes every lost node for the failure of a worker."""
    after, actions = machine.step(state, event, now)
    return after, tuple(map(_as_failure, actions))


def _as_failure(action: Action) -> Action:
    if not isinstance(action, CompareAndSet) or action.generation is None or action.generation.number < 2:
        return action
    charged = replace(action.generation.budget, charged=action.generation.budget.charged + 1)
    return replace(action, generation=replace(action.generation, budget=charged))


def parks_untold(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: takes the order to park for the deed."""
    after, actions = machine.step(state, event, now)
    if any(isinstance(action, ParkWorkers) for action in actions) and after.workers:
        for rank in range(after.node.local_world_size):
            after, more = machine.step(after, events.WorkerParked(after.workers.identity[0], rank), now)
            actions += more
    return after, actions


def is_ready_at_once(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: takes the order to start workers on standby for their word that they are ready."""
    after, actions = machine.step(state, event, now)
    if any(isinstance(action, PrepareWorkers) for action in actions):
        for rank in range(after.node.local_world_size):
            after, more = machine.step(after, events.WorkerParked(0, rank), now)
            actions += more
    return after, actions


def waits_for_ever(state: State, event: events.Event, now: float) -> Step:
    """Wrong on purpose: hears nothing of workers that have parked, and ends none that is late."""
    if isinstance(event, events.WorkerParked):
        return state, ()
    after, actions = machine.step(state, event, now)
    return after, tuple(action for action in actions if not isinstance(action, KillWorkers))


@pytest.mark.parametrize(
    ("mutant", "explored"),
    [
        (parks_untold, scenario("crash", 1, nodes=2, settled=2, moves=True)),
        (waits_for_ever, scenario("crash", 1, nodes=2, settled=2, moves=True)),
        (waits_for_ever, scenario("", 0, nodes=2, settled=1, steps=1, moves=True)),
        (is_ready_at_once, scenario("", 0, nodes=2, settled=1, steps=1, moves=True, late=True)),
        (says_stopped_too_early, scenario("leave", 1, nodes=2, settled=1)),
        (believes_everybody_dead, scenario("freeze", 1, nodes=2, settled=1)),
        (ignores_failures, scenario("fail", 1, nodes=2, settled=2)),
        (charges_membership, scenario("crash", 1, nodes=2, settled=2)),
        (takes_the_killed_for_failed, scenario("cut", 1, nodes=1, settled=1, nnodes="1:1")),
        (resumes_unasked, scenario("freeze", 1, nodes=2, settled=1)),
        (counts_by_its_own_clock, scenario("skew", 1, nodes=2, settled=1, finish=True)),
        (takes_a_disconnected_node_for_dead, scenario("close", 1, nodes=2, settled=1)),
        (meets_once, scenario("close", 1, nodes=2, settled=1)),
    ],
)
def test_checker_finds_a_broken_machine(mutant: world.Stepper, explored: world.Scenario) -> None:
    """A machine without one of its rules breaks a law or gets stuck."""
    with pytest.raises(world.BrokenError):
        explore(replace(explored, stepper=mutant), LIMIT)


def test_checker_finds_workers_that_are_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no change is attempted as a move, a survivor's workers are started a second time."""
    monkeypatch.setattr(move, "mode_of_change", lambda *_: "restart")
    explored = MOVES["two that can move, and a loss"]

    with pytest.raises(world.BrokenError, match="started its workers 2 times"):
        checker.explore(explored, (laws.survivors_keep_their_workers,), laws.is_good, LIMIT)


def test_checker_finds_a_state_that_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each node takes the other for one that goes on, all leave without the last save."""
    monkeypatch.setattr(move, "goes_on", lambda *_: True)
    explored = DEEP["all that can move leave"]

    with pytest.raises(world.BrokenError, match="none of their workers saved the state"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_a_newcomer_that_is_taken_for_one_with_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a newcomer counts before it has the state, the node that has it leaves, and nobody saves it."""
    seen = member_status._seen

    def too_early(*said: Any, **how: Any) -> MemberStatus:
        status = seen(*said, **how)
        return replace(status, has_state=status.can_move)

    monkeypatch.setattr(member_status, "_seen", too_early)
    explored = DEEP["the only one with the state leaves while another joins"]

    with pytest.raises(world.BrokenError, match="none has saved it"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_a_charge_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only members' losses count, a node that stepped back and is lost costs a restart."""
    monkeypatch.setattr(machine, "DECISIONS", tuple(each for each in machine.DECISIONS if each != commit.give_back))
    explored = scenario("fail crash", 2, nodes=2, settled=2, steps=1, moves=True)

    with pytest.raises(world.BrokenError, match="is charged for a node that was lost"):
        checker.explore(explored, (laws.a_lost_node_costs_nothing,), laws.is_good, LIMIT)


def test_checker_finds_a_newcomer_that_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no newcomer starts its workers on standby, a generation ends before they have begun to import."""
    monkeypatch.setattr(standby, "a_member_can_move", lambda *_: False)

    with pytest.raises(world.BrokenError, match="workers have yet to start"):
        checker.explore(MOVES["another joins in place"], (laws.newcomers_are_ready,), laws.is_good, LIMIT)


def test_checker_finds_a_newcomer_that_has_no_time_to_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where workers on standby have as little time as newcomers have patience, all of a newcomer's start twice."""
    monkeypatch.setattr(standby, "UNKNOWN_START", 0.0)
    explored = MOVES["another joins in place, and newcomers have no patience"]

    with pytest.raises(world.BrokenError, match="started its workers 2 times"):
        checker.explore(explored, (laws.survivors_keep_their_workers,), laws.is_good, LIMIT)


def test_checker_finds_a_finish_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only a node's own record says that it has finished, its peer's last work is broken off in the end."""
    monkeypatch.setattr(machine, "DECISIONS", tuple(each for each in machine.DECISIONS if each != change.keep_finish))
    explored = SCENARIOS["the end, with a fault"]

    with pytest.raises(world.BrokenError, match="which had finished"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_a_start_before_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the waits for old workers, of others and of one's own, a node starts before it stopped."""
    monkeypatch.setattr(MemberStatus, "busy", property(lambda _: False))
    monkeypatch.setattr(MemberStatus, "done", True, raising=False)
    monkeypatch.setattr(State, "active", property(lambda _: False))

    with pytest.raises(world.BrokenError, match="before it stopped"):
        checker.explore(scenario("", 0, settled=2), laws.ALL, laws.is_good, LIMIT)


def test_checker_finds_a_newcomer_that_is_never_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no generation ever counts as trained, a late node waits without end."""
    monkeypatch.setattr(change, "planned_change_is_due", lambda *_: False)

    with pytest.raises(world.BrokenError, match="no way from here"):
        checker.explore(scenario("", 0, nodes=2, settled=1, nnodes="1:2"), laws.ALL, laws.is_good, LIMIT)


def test_checker_finds_a_newcomer_that_ends_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the time since the order to start counts, a newcomer ends workers that still load."""

    def counts_from_the_start(state: State, workers: LocalWorkers, now: float) -> bool:
        return now - workers.started >= state.limits.planned_gap

    monkeypatch.setattr(change, "planned_change_is_due", counts_from_the_start)
    explored = scenario("", 0, nodes=2, settled=1, nnodes="1:2", steps=1)

    with pytest.raises(world.BrokenError, match="before its first step"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


@pytest.mark.parametrize(
    "explored",
    [
        scenario("", 0, nodes=2, settled=1, names=("x", "x"), beside=True),
        scenario("", 0, nodes=2, settled=2, names=("x", "x"), beside=True),
    ],
)
def test_checker_finds_namesakes_that_evict_each_other(
    monkeypatch: pytest.MonkeyPatch, explored: world.Scenario
) -> None:
    """Where a namesake with a later clock proves a node's death, connected namesakes are taken for dead."""

    def believes_clocks(state: State, peer: events.Peer, _now: float) -> bool:
        return any(
            bool(other.record.name)
            and other.record.name == peer.record.name
            and other.record.joined > peer.record.joined
            for other in state.store.peers
        )

    monkeypatch.setattr(member_status, "_is_dead", believes_clocks)

    with pytest.raises(world.BrokenError):
        explore(explored, LIMIT)


def test_checker_finds_a_returned_pod_that_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the proof by a namesake, and without the dead-man timer's, a recreated pod never trains."""
    monkeypatch.setattr(member_status, "_is_dead", lambda _state, peer, _now: peer.presence == "ended")

    with pytest.raises(world.BrokenError, match="no way from here"):
        explore(scenario("crash", 1, nodes=2, settled=1, names=("x", "x")), LIMIT)


def test_checker_tells_how_long_a_returned_pod_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the proof by a namesake the recreated pod waits for the dead-man timer of the first."""
    monkeypatch.setattr(member_status, "_is_replaced", lambda *_: False)
    explored = explore(scenario("crash", 1, nodes=2, settled=1, names=("x", "x")), LIMIT)

    assert explored.seconds >= world.AGE


def test_checker_finds_a_size_that_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two equal failures blame a node as one does, a newcomer ends a job that was well."""
    monkeypatch.setattr(blame, "is_size_refused", lambda *_: False)
    explored = SCENARIOS["a size that the script refuses"]

    with pytest.raises(world.BrokenError, match="a size that the script refuses"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_an_exception_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only an exit code tells of an exception, a worker that a signal ends before Python's own end tells nothing.

    A signal comes first where Python's end takes longer than the wait for other failures, as after a fork of torch.
    """

    def reads_the_code_alone(workers: LocalWorkers, event: events.WorkerExited) -> str:
        return f"{event.exit_code} {event.exception}" if workers.stepped_at is None and event.exit_code > 0 else ""

    monkeypatch.setattr(apply_event, "_start_failure", reads_the_code_alone)
    explored = SCENARIOS["a size that the script refuses, and ends slowly"]

    with pytest.raises(world.BrokenError, match="a size that the script refuses"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_a_node_that_fails_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no name is refused, every pod that is made again is let in, and ends one more generation."""
    monkeypatch.setattr(node_faults, "is_refused", lambda *_: False)
    explored = SCENARIOS["a node whose launchers end by faults of their own"]

    with pytest.raises(world.BrokenError, match="is let in after 2 faults of its own"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)


def test_checker_finds_a_part_of_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every ready node is taken, a generation has a number of nodes that the limits exclude."""
    explored = SCENARIOS["a third node beyond a whole unit"]
    monkeypatch.setattr(commit, "_places", lambda _state, _last, old, new, _sizes=(): ranks.assign(old, new, 4))

    with pytest.raises(world.BrokenError, match="has 3 nodes"):
        checker.explore(explored, laws_of(explored), laws.is_good, LIMIT)
