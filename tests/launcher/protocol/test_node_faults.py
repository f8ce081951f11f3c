"""What is a node's own fault, and when the others go on without it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.protocol import commit, events, machine, node_faults
from elastic_infra.launcher.protocol.actions import Exit
from elastic_infra.launcher.protocol.events import Peer
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Budget, Generation, NodeFaults
from elastic_infra.launcher.protocol.restart_budget import ALONE_TRIES
from elastic_infra.launcher.protocol.state import State
from tests.launcher.protocol.states import FAILURE, PAIR, connected, peer, ready

LIMITS = Limits(max_nodes=3, max_restarts=1)
BROKEN = replace(PAIR, phase="broken", cause=replace(FAILURE, kind="node_lost"))
NAME = "job-1"
ENDED = replace(peer("n1", "member", name=NAME), presence="ended")
CLOCK = 1000
"""The store's at this node's time 0."""
WINDOW = int(LIMITS.node_faults_window)
FULL = (NodeFaults(NAME, (CLOCK,) * LIMITS.node_faults),)
ALMOST = (NodeFaults(NAME, (CLOCK,) * (LIMITS.node_faults - 1)),)


def successor() -> Peer:
    """The recreated pod of the same name."""
    said = ready("n2")
    return replace(said, record=replace(said.record, name=NAME))


def next_generation(member: Peer, generation: Generation = BROKEN, now: float = 0.0, *more: Peer) -> Generation:
    """What this node commits after the end of the other member."""
    after = commit.commit(connected(LIMITS, generation, member, *more, phase="stopped"), now)
    assert after is not None
    return after


def test_a_launcher_that_ended_by_itself_is_counted() -> None:
    """Faults are counted one after the other by the pod's name, since its uuid changes each time."""
    once = next_generation(ENDED)
    again = next_generation(ENDED, replace(BROKEN, node_faults=once.node_faults))

    assert once.node_faults == (NodeFaults(NAME, (CLOCK,)),)
    assert again.node_faults == (NodeFaults(NAME, (CLOCK, CLOCK)),)


@pytest.mark.parametrize(
    "member",
    [
        replace(ENDED, presence="disconnected"),
        replace(ENDED, presence="silent"),
        replace(ENDED, record=replace(ENDED.record, leaving=True)),
        replace(ENDED, record=replace(ENDED.record, state="finished")),
        replace(ENDED, record=replace(ENDED.record, name="")),
        replace(ENDED, presence="live", record=replace(ENDED.record, state="stopped")),
    ],
    ids=["crashed", "silent", "told to end", "finished", "no name", "alive"],
)
def test_what_befalls_a_node_is_not_its_fault(member: Peer) -> None:
    """A lost machine, a preemption, an end of the work; and a launcher without a name has no successor."""
    assert next_generation(member).node_faults == ()


def test_rare_faults_do_not_add_up() -> None:
    """Each counts for the window, however many generations other nodes end in it."""
    before = replace(BROKEN, node_faults=(NodeFaults("job-9", (CLOCK, CLOCK + 1)), NodeFaults(NAME, (CLOCK,) * 5)))
    quiet = replace(ENDED, presence="disconnected")
    after = next_generation(ENDED, before, WINDOW)
    later = next_generation(quiet, replace(BROKEN, node_faults=after.node_faults), WINDOW + 1)

    assert after.node_faults == (NodeFaults(NAME, (CLOCK + WINDOW,)), NodeFaults("job-9", (CLOCK + 1,)))
    assert later.node_faults == (NodeFaults(NAME, (CLOCK + WINDOW,)),)


@given(st.lists(st.integers(0, 2 * WINDOW), max_size=40))
def test_a_node_is_left_out_for_as_many_faults_as_the_limit_within_the_window(pauses: list[int]) -> None:
    """Whatever the times between its faults, and not before."""
    faults: tuple[NodeFaults, ...] = ()
    for end in itertools.accumulate(pauses):
        faults = next_generation(ENDED, replace(BROKEN, node_faults=faults), end).node_faults
    ends = list(itertools.accumulate(pauses))
    runs = zip(ends, ends[LIMITS.node_faults - 1 :], strict=False)

    assert node_faults.is_refused(replace(PAIR, node_faults=faults), LIMITS, NAME) == any(
        last - first < WINDOW for first, last in runs
    )


def test_a_node_that_is_left_out_stays_out() -> None:
    """Its next try would only cost the others one more generation."""
    lost = replace(ENDED, presence="disconnected")

    assert next_generation(lost, replace(BROKEN, node_faults=FULL), 10 * WINDOW).node_faults == FULL


def test_an_eviction_counts_the_failures_that_led_to_it() -> None:
    """The same node failed alone twice, and its pod comes again under its name."""
    failure = replace(FAILURE, node=NAME)
    culprit = Budget(restarts=1, charged=1, culprit="n1", culprit_failures=ALONE_TRIES - 1)
    broken = replace(BROKEN, cause=failure, budget=culprit)
    after = next_generation(peer("n1", "stopped", name=NAME), broken)

    assert after.evicted == "n1"
    assert after.node_faults == (NodeFaults(NAME, (CLOCK,) * ALONE_TRIES),)


def test_a_node_with_too_many_faults_is_left_out() -> None:
    """The node's successor is admitted up to the bound and not beyond; other nodes are admitted."""
    almost = replace(BROKEN, node_faults=ALMOST)
    full = replace(BROKEN, node_faults=FULL)
    lost = replace(ENDED, presence="disconnected")

    admitted = next_generation(lost, almost, 0.0, successor())
    refused = next_generation(lost, full, 0.0, successor(), ready("n3"))

    assert [member.uuid for member in admitted.members] == ["n0", "n2"]
    assert [member.uuid for member in refused.members] == ["n0", "n3"]


def test_the_fault_that_ends_a_generation_counts_at_once() -> None:
    """The successor that is ready when its last fault is counted is not let in for one more."""
    almost = replace(BROKEN, node_faults=ALMOST)
    after = next_generation(ENDED, almost, 0.0, successor())

    assert [member.uuid for member in after.members] == ["n0"]
    assert after.node_faults == FULL


def left_out(generation: Generation | None, limits: Limits) -> State:
    """This node has the name with too many faults."""
    state = connected(limits, generation)
    return replace(state, node=replace(state.node, uuid="n2", name=NAME))


def test_it_waits_beside_a_job_that_trains() -> None:
    """The end of the launcher would only be followed by another pod; the launcher logs why it waits."""
    trains = replace(PAIR, node_faults=FULL)
    state = connected(LIMITS, trains, peer("n0", "member"), peer("n1", "member"))
    state = replace(state, node=replace(state.node, uuid="n2", name=NAME))
    state, actions = machine.step(state, events.Tick(), 10 * LIMITS.join_timeout)

    assert not state.exited
    assert "faults of its own" in machine.waiting_for(state, 0.0)
    assert not any(isinstance(action, Exit) for action in actions)


@pytest.mark.parametrize(("faults", "code"), [(FULL, 1), ((), 200)])
def test_a_job_that_needs_it_ends(faults: tuple[NodeFaults, ...], code: int) -> None:
    """The failure is final where the others cannot go on without it; without faults it is worth another try."""
    limits = replace(LIMITS, min_nodes=2, max_nodes=2)
    _, actions = machine.step(
        left_out(replace(PAIR, phase="broken", node_faults=faults), limits), events.Tick(), limits.join_timeout
    )

    assert [action.code for action in actions if isinstance(action, Exit)] == [code]


def test_without_a_generation_no_name_is_refused() -> None:
    """A store that was reborn empty, or a job that has just begun."""
    assert not node_faults.is_refused(None, LIMITS, NAME)
