"""What the log says of a step: which node or generation went from which state to which, and why."""

from __future__ import annotations

from dataclasses import replace

from elastic_infra.launcher.protocol import actions, events, machine, report
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Cause
from elastic_infra.launcher.protocol.state import State
from tests.launcher.protocol.states import PAIR, connected, peer


def lines(state: State, event: events.Event) -> tuple[str, ...]:
    after, actions = machine.step(state, event, 1.0)
    return report.transitions(state, after, actions)


def test_lost_node_is_told_with_its_generation() -> None:
    """The node that sees the loss says what it asks for; then generation and node change, and the lines say so."""
    state = replace(connected(Limits(max_nodes=2), PAIR, peer("n1", "member"), phase="running"), phase_since=0.5)
    state = replace(state, seen=(PAIR.identity, "running"))
    lost = replace(peer("n1", "member"), presence="ended")
    broken = replace(PAIR, phase="broken", cause=Cause("node_lost", "n1", "n1"), revision=2)

    assert lines(state, events.PeerSeen(lost)) == (
        "n0 asks for generation 1 running -> 1 broken of 2 nodes, node_lost n1.",
    )
    assert lines(state, events.GenerationSeen(broken, 2)) == (
        "n0: member -> draining, generation 1.",
        "Generation 1: running -> broken of 2 nodes, node_lost n1.",
    )


def test_step_that_changes_nothing_is_silent() -> None:
    """Time passes without a line."""
    state = connected(Limits(max_nodes=2), PAIR, peer("n1", "member"), phase="running")
    state, _ = machine.step(state, events.Tick(), 0.0)

    assert lines(state, events.Tick()) == ()


def test_a_move_is_told_beside_its_cause() -> None:
    """Readers of the events see that workers kept their processes."""
    state = replace(connected(Limits(max_nodes=2), PAIR, peer("n1", "member")), seen=(PAIR.identity, "broken"))
    moved = replace(PAIR, number=2, mode="move", cause=Cause("scale_up", "n1", "n1"), revision=2)
    _, done = machine.step(state, events.GenerationSeen(moved, 2), 1.0)

    changes = [action for action in done if isinstance(action, actions.Emit) and action.event == "membership_change"]
    assert [("mode", "move") in change.fields for change in changes] == [True]


def test_a_restart_in_place_of_a_move_is_told_with_its_reason() -> None:
    """After two moves without a step the workers are not kept; where none was tried there is nothing to tell."""
    state = replace(connected(Limits(max_nodes=2), PAIR, peer("n1", "member")), seen=(PAIR.identity, "broken"))
    said = []
    for failed in (0, 1, 2):
        following = replace(PAIR, number=2, failed_moves=failed, cause=Cause("node_lost", "n1", "n1"), revision=2)
        store = replace(state.store, generation=following)
        after = replace(state, store=store, seen=(following.identity, "running"))
        (line,) = report.announce(state, after)
        said.append(line.line.partition("Workers start again: ")[2])

    assert said == [
        "2 on 2 nodes.",
        "2 on 2 nodes.",
        "2 on 2 nodes. They are not kept, because 2 changes in place in a row made no step.",
    ]
