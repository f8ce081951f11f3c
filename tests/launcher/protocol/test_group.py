"""The local workers: when they start, and why and how they are stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol import actions, events, group, machine
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Generation, Master
from elastic_infra.launcher.protocol.state import LocalWorkers
from tests.launcher.protocol.states import FAILURE, INCARNATION, PAIR, connected, peer

LIMITS = Limits(max_nodes=2, shutdown_grace=30.0, failure_grace=5.0)
RUNNING = LocalWorkers(PAIR.identity, "running")


def test_a_member_enters_once_and_only_without_old_workers() -> None:
    """Its old workers are gone first; a generation that ends already counts as stopped."""
    state = connected(LIMITS, PAIR)
    entered, _ = group.enter(state, 1.0)
    late, _ = group.enter(connected(LIMITS, replace(PAIR, phase="broken")), 1.0)
    old = replace(state, workers=replace(RUNNING, identity=(0, "e")))

    assert entered.workers == LocalWorkers(PAIR.identity, "preparing", 1.0)
    assert group.enter(entered, 2.0) == (entered, ())
    assert late.workers is not None
    assert late.workers.phase == "stopped"
    assert group.enter(old, 1.0) == (old, ())


def test_the_leader_asks_for_a_port_and_starts_on_it() -> None:
    """Once; its followers start where it says."""
    state, _ = group.enter(connected(LIMITS, PAIR), 0.0)
    asked, orders = group.start(state, 1.0)
    assert asked.workers is not None
    known = replace(asked, workers=replace(asked.workers, port=4000))
    running, started = group.start(known, 2.0)

    assert orders == (actions.ChoosePort(PAIR.number),)
    assert group.start(asked, 1.5) == (asked, ())
    assert [(order.master_port, order.world_size) for order in started if isinstance(order, actions.StartWorkers)] == [
        (4000, 2)
    ]
    assert running.workers is not None
    assert (running.workers.phase, running.workers.started) == ("running", 2.0)


@pytest.mark.parametrize(("number", "starts"), [(PAIR.number, True), (PAIR.number - 1, False)])
def test_a_follower_waits_for_its_own_generations_master(number: int, starts: bool) -> None:
    """The meeting place of an earlier generation would join two of them."""
    follows = replace(PAIR, members=PAIR.members[::-1])
    state, _ = group.enter(connected(LIMITS, follows), 0.0)
    master = Master(number, PAIR.incarnation, "10.0.0.1", 4000)
    _, orders = group.start(replace(state, store=replace(state.store, master=master)), 1.0)

    assert bool(orders) == starts


def test_the_leader_publishes_again_on_every_connection() -> None:
    """What it wrote last on a connection that ended may be lost, though the store is the same and knows it still."""
    state = connected(LIMITS, PAIR, peer("n1", "member"))
    state, _ = machine.step(state, events.Tick(), 0.0)
    state, first = machine.step(state, events.PortChosen(PAIR.number, 4000), 1.0)
    state, meanwhile = machine.step(state, events.Tick(), 2.0)
    state, _ = machine.step(state, events.StoreLost(fresh=True), 3.0)
    again = events.StoreConnected(INCARNATION, PAIR, 1, (peer("n1", "member"),), None)
    state, second = machine.step(state, again, 4.0)
    place = actions.PublishMaster(Master(PAIR.number, INCARNATION, "", 4000))

    assert place in first
    assert place not in meanwhile
    assert place in second


@pytest.mark.parametrize(
    ("workers", "generation", "first", "grace"),
    [
        (replace(RUNNING, failure=FAILURE), PAIR, "SIGTERM", 5.0),
        (replace(RUNNING, failure=replace(FAILURE, kind="hang")), PAIR, "stacks", 0.0),
        (replace(RUNNING, exits=((0, 0, False),)), PAIR, "SIGKILL", 0.0),
        (RUNNING, replace(PAIR, phase="broken", cause=FAILURE), "SIGTERM", 5.0),
        (RUNNING, replace(PAIR, phase="broken", cause=replace(FAILURE, kind="hang")), "stacks", 0.0),
        (RUNNING, replace(PAIR, phase="draining"), "SIGTERM", 30.0),
        (replace(RUNNING, highest=9), replace(PAIR, phase="draining", stop_step=9), "none", 30.0),
        (RUNNING, replace(PAIR, number=PAIR.number + 1), "SIGTERM", 5.0),
    ],
)
def test_how_workers_are_stopped(workers: LocalWorkers, generation: Generation, first: str, grace: float) -> None:
    """A failure gives the others the shorter grace, a planned change the whole, a hang none."""
    state = replace(connected(LIMITS, generation, peer("n1", "member")), workers=workers)
    told, (order,) = group.stop(state, 100.0)

    assert isinstance(order, actions.StopWorkers)
    assert (order.first, order.grace_seconds) == (first, grace)
    assert group.stop(told, 100.0) == (told, ())


@pytest.mark.parametrize("generation", [PAIR, replace(PAIR, phase="draining", stop_step=9)])
def test_nothing_stops_workers_that_may_go_on(generation: Generation) -> None:
    """A healthy generation, and one whose stop step lies ahead."""
    state = replace(connected(LIMITS, generation, peer("n1", "member")), workers=replace(RUNNING, highest=8))

    assert group.stop(state, 100.0) == (state, ())


def test_an_order_is_only_made_harder_or_earlier() -> None:
    """SIGTERM after a stop by step and before SIGKILL, never the other way."""
    planned = replace(PAIR, phase="draining")
    state, _ = group.stop(replace(connected(LIMITS, planned), workers=RUNNING), 0.0)
    broken = replace(state.store, generation=replace(PAIR, phase="broken", cause=FAILURE))
    earlier, (order,) = group.stop(replace(state, store=broken), 1.0)

    assert isinstance(order, actions.StopWorkers)
    assert order.grace_seconds == 5.0
    assert group.stop(replace(earlier, store=state.store), 2.0)[1] == ()
