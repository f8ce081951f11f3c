"""What a node says of itself, from its state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.state import LocalWorkers, Node, record, start
from tests.launcher.protocol.states import FAILURE, PAIR, connected


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("preparing", "member"),
        ("running", "member"),
        ("stopping", "draining"),
        ("stopped", "stopped"),
        ("finished", "finished"),
    ],
)
def test_a_member_says_what_its_workers_are_at(phase: str, said: str) -> None:
    """One word for each phase; peers wait for the last two."""
    assert record(connected(Limits(max_nodes=2), PAIR, phase=phase)).state == said


def test_a_node_without_workers_is_warming_ready_or_left() -> None:
    """No node waits for any of the three."""
    begun = start(Node("n0"), Limits(), 0.0)

    assert record(begun).state == "warming"
    assert record(replace(begun, ready=True)).state == "ready"
    assert record(replace(begun, ready=True, leaving_since=1.0)).state == "left"


def test_a_leaving_node_is_a_member_until_its_workers_are_gone() -> None:
    """Peers must wait for the workers, even if the node is about to leave."""
    state = replace(connected(Limits(max_nodes=2), PAIR, phase="running"), leaving_since=1.0)

    assert (record(state).state, record(state).leaving) == ("member", True)


def test_the_dead_man_timer_is_told() -> None:
    """Peers count an orphaned node's end as a loss, not as its failure."""
    orphaned = LocalWorkers(PAIR.identity, "stopped", failure=replace(FAILURE, kind="orphaned"))

    assert record(replace(connected(Limits(max_nodes=2), PAIR), workers=orphaned)).orphaned


def test_workers_of_another_generation_are_not_its_own() -> None:
    """The store's generation may be one ahead."""
    state = connected(Limits(max_nodes=2), PAIR, phase="running")

    assert state.workers_of(PAIR) is state.workers
    assert state.workers_of(replace(PAIR, incarnation="other")) is None
    assert state.own_member() == PAIR.members[0]
