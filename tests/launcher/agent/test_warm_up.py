"""When a node is able: a newcomer that is not needed yet loads its fork server first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.launcher import ipc
from elastic_infra.launcher.agent.warm_up import decide
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.records import Member
from elastic_infra.launcher.protocol.state import State
from tests.launcher.protocol.states import PAIR, connected, peer

OTHERS = replace(PAIR, members=(Member("n1", "n1", 1),))


def newcomer() -> State:
    """n1 trains without this node."""
    return connected(Limits(max_nodes=2), OTHERS, peer("n1", "member", OTHERS))


@pytest.mark.parametrize(
    ("asked_at", "now", "verdict"),
    [(None, 0.0, "ask"), (1.0, 2.0, "wait"), (1.0, 1.0 + ipc.LOAD_SECONDS, "ready")],
)
def test_a_newcomer_warms_up_first(asked_at: float | None, now: float, verdict: str) -> None:
    """It asks once and waits, and an import that hangs keeps it out for a bounded time."""
    assert decide(newcomer(), can_warm=True, asked_at=asked_at, now=now) == verdict


def test_without_warm_start_it_is_ready_at_once() -> None:
    """There is nothing to wait for."""
    assert decide(newcomer(), can_warm=False, asked_at=None, now=0.0) == "ready"


def test_a_needed_node_is_ready_at_once() -> None:
    """A first round, its own generation, and one that cannot go on without it."""
    needed = replace(newcomer(), limits=Limits(min_nodes=2, max_nodes=2))
    first = connected(Limits(max_nodes=2), None)
    own = connected(Limits(max_nodes=2), PAIR, peer("n1", "member"))

    assert {decide(state, can_warm=True, asked_at=None, now=0.0) for state in (needed, first, own)} == {"ready"}


def test_before_the_store_was_heard_it_waits() -> None:
    """Only the store knows which nodes train."""
    state = newcomer()
    unheard = replace(state, store=replace(state.store, connected=False))

    assert decide(unheard, can_warm=False, asked_at=None, now=0.0) == "wait"
