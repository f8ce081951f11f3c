"""Which node asks first where a thousand nodes want the same change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import actions, events, machine, turns
from elastic_infra.launcher.protocol.events import Peer
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Cause, Generation, Member, NodeRecord
from elastic_infra.launcher.protocol.state import LocalWorkers, Node, State, Store, start
from tests.launcher.protocol.states import INCARNATION

NODES = 100
MANY = Generation(1, members=tuple(Member(f"n{index:03d}", "", 1) for index in range(NODES)), incarnation=INCARNATION)


def member(index: int, lost: frozenset[int] = frozenset(), nodes: int = NODES) -> State:
    """The agent of one member, whose workers train, and which sees that some of the others have ended."""
    generation = replace(MANY, members=MANY.members[:nodes])
    peers = tuple(
        Peer(NodeRecord(each.uuid, "", "member", generation=1, incarnation=INCARNATION),
             "ended" if place in lost else "live", 0.0)
        for place, each in enumerate(generation.members)
    )  # fmt: skip
    store = Store(connected=True, incarnation=INCARNATION, version=1, generation=generation, peers=peers)
    state = start(Node(f"n{index:03d}"), Limits(max_nodes=NODES), 0.0)
    workers = LocalWorkers(generation.identity, "running")
    return replace(state, ready=True, store=store, latest_seen=generation, workers=workers)


def asks_at(state: State, until: float = 10.0) -> float | None:
    """When this node asks for a change, looking twenty times a second."""
    for tick in range(int(until * 20)):
        state, orders = machine.step(state, events.Tick(), tick / 20)
        if any(isinstance(order, actions.CompareAndSet) for order in orders):
            return tick / 20
    return None


def test_a_small_generation_asks_all_at_once() -> None:
    """Up to ``CROWD`` members all ask at once after a lost node, as does the only member that can ask."""
    lost = frozenset({1})

    assert {asks_at(member(index, lost, turns.CROWD)) for index in (0, 2, turns.CROWD - 1)} == {0.0}


def test_members_of_a_large_one_ask_in_turn() -> None:
    """The first that lives asks at once; each other waits for those before it, and asks if they do not."""
    first, second, last = (asks_at(member(index, frozenset({0, 1}))) for index in (2, 3, NODES - 1))

    assert first == 0.0
    assert second == pytest.approx(turns.TURN_SECONDS)
    assert last == pytest.approx(turns.TURN_SECONDS * (NODES - 3), abs=turns.TURN_SECONDS)


def test_a_member_asks_at_once_for_what_only_it_knows() -> None:
    """No other node can ask in its place for the failure of its workers."""
    state = member(NODES - 1)
    _, orders = machine.step(state, events.WorkerExited(1, 0, 1, "boom"), 5.0)
    asked = [order.generation for order in orders if isinstance(order, actions.CompareAndSet)]

    assert [generation.phase for generation in asked if generation] == ["broken"]


def test_what_all_see_while_they_agree_on_a_step_is_asked_in_turn() -> None:
    """Only a stop step that is raised is one node's own news: all see that a member which had finished has ended."""
    state = member(NODES - 1, frozenset({0}))
    proposed = replace(state.generation or MANY, phase="proposed", stop_step=9)
    first, *others = state.store.peers
    finished = replace(first, record=replace(first.record, state="finished"))
    store = replace(state.store, generation=proposed, peers=(finished, *others))

    assert asks_at(replace(state, store=store, latest_seen=proposed)) == pytest.approx(
        turns.TURN_SECONDS * (NODES - 2), abs=turns.TURN_SECONDS
    )


def test_a_change_that_another_made_ends_the_wait() -> None:
    """The time begins anew with the next due change, so that no node asks early for another one."""
    state = member(50, frozenset({1}))
    state, _ = machine.step(state, events.Tick(), 0.0)
    waited = state.wanting_since
    broken = replace(state.generation or MANY, phase="broken", revision=1, cause=Cause("node_lost", "n001", "n001"))
    state, _ = machine.step(state, events.GenerationSeen(broken, 2), 0.5)

    assert waited == 0.0
    assert state.wanting_since is None
