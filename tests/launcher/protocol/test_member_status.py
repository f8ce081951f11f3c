"""A member's status: done, gone or dead, from its record and its presence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher.protocol import events, machine, member_status
from elastic_infra.launcher.protocol.events import Peer
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.member_status import MemberStatus, member_statuses
from elastic_infra.launcher.protocol.records import Generation, Member
from elastic_infra.launcher.protocol.state import State
from tests.launcher.protocol.states import PAIR, connected, peer

LIMITS = Limits(max_nodes=2)


def status_of_n1(said: Peer | None, now: float = 0.0, generation: Generation = PAIR) -> MemberStatus:
    """The status of n1 as this node, n0, sees it."""
    return member_statuses(connected(LIMITS, generation, *([said] if said else [])), generation, now)[1]


@pytest.mark.parametrize(
    ("state", "done", "finished"),
    [("member", False, False), ("draining", False, False), ("stopped", True, False), ("finished", True, True)],
)
def test_a_member_is_done_when_it_says_so(state: str, done: bool, finished: bool) -> None:
    """Only the member's own record ends the wait for a member that answers."""
    status = status_of_n1(peer("n1", state))

    assert (status.done, status.finished, status.busy) == (done, finished, not done)


def test_what_it_says_of_another_generation_does_not_count() -> None:
    """A record of the last generation says nothing of this one's workers."""
    said = peer("n1", "stopped")
    said = replace(said, record=replace(said.record, generation=PAIR.number - 1))

    assert status_of_n1(said).busy


def test_a_farewell_is_a_death_and_absence_becomes_one() -> None:
    """A supervisor says when its node is dead; one that is away may come back until its dead-man timer has run."""
    silent = replace(peer("n1", "member"), presence="silent")
    ended, away = replace(silent, presence="ended"), replace(silent, presence="disconnected")

    assert (status_of_n1(ended).gone, status_of_n1(ended).dead) == (True, True)
    assert (status_of_n1(away).gone, status_of_n1(away, LIMITS.reconnect_wait).gone) == (False, True)
    assert status_of_n1(away, generation=replace(PAIR, phase="broken")).gone
    assert not status_of_n1(away, LIMITS.reconnect_wait).dead
    assert status_of_n1(away, LIMITS.dead_after).dead
    assert (status_of_n1(silent).gone, status_of_n1(silent).dead) == (True, False)
    assert status_of_n1(silent, LIMITS.dead_after).dead


def test_a_peer_without_a_connection_is_gone_once_the_script_fails_here() -> None:
    """A crash ends the peers' collectives, and their exceptions are seen before their processes have ended."""
    away = replace(peer("n1", "member"), presence="disconnected")
    state = connected(LIMITS, PAIR, away, phase="running")
    state, _ = machine.step(state, events.StepsSeen(PAIR.number, None, None, failing=True), 0.1)
    live = connected(LIMITS, PAIR, peer("n1", "member"), phase="running")
    live, _ = machine.step(live, events.StepsSeen(PAIR.number, None, None, failing=True), 0.1)

    assert member_statuses(state, PAIR, 0.1)[1].gone
    assert not member_statuses(state, PAIR, 0.1)[1].dead
    assert not member_statuses(live, PAIR, 0.1)[1].gone


def test_a_successor_of_the_same_name_is_proof_of_death() -> None:
    """A pod is recreated when the former is gone; the store's count shows that its successor came later."""
    old, new = peer("n1", "member", name="job-1", joined=2), peer("n2", "ready", name="job-1", joined=1)
    away, later = replace(old, presence="disconnected", arrived=1, departed=3), replace(new, arrived=4)

    assert is_n1_dead(away, later)
    assert not is_n1_dead(away, replace(new, arrived=2))
    assert not is_n1_dead(replace(old, arrived=1), later)
    assert not is_n1_dead(replace(away, presence="silent"), later)


def is_n1_dead(old: Peer, new: Peer) -> bool:
    """What this node thinks of n1 once it had the time to connect again."""
    return member_statuses(connected(LIMITS, PAIR, old, new), PAIR, LIMITS.reconnect_wait)[1].dead


def test_a_member_without_a_record_is_dead_only_where_the_store_remembers() -> None:
    """The store that committed the generation has forgotten it: it ended. A reborn store has yet to see it."""
    reborn = replace(PAIR, incarnation="before")

    assert status_of_n1(None).dead
    assert not status_of_n1(None, generation=reborn).gone
    assert status_of_n1(None, LIMITS.dead_after, reborn).dead


@pytest.mark.parametrize("incarnation", [PAIR.incarnation, "before"])
def test_a_member_without_a_record_has_finished_where_the_generation_says_so(incarnation: str) -> None:
    """Its own record ends with its node; the generation's is brought into a reborn store."""
    status = status_of_n1(None, generation=replace(PAIR, incarnation=incarnation, finished=("n1",)))

    assert (status.done, status.finished, status.dead, status.lost) == (True, True, True, False)


def test_a_loss_is_anything_but_a_finish() -> None:
    """Leaving, orphaned and unreachable members are lost to the next generation; a finished one is not."""
    assert status_of_n1(peer("n1", "stopped", leaving=True)).lost
    assert status_of_n1(peer("n1", "stopped", orphaned=True)).lost
    assert not status_of_n1(peer("n1", "stopped")).lost
    assert not status_of_n1(replace(peer("n1", "finished"), presence="ended")).lost


SAID = {
    "absent": (),
    "at work": (peer("n1", "member"),),
    "at work too": (peer("n1", "member"),),
    "stopped": (peer("n1", "stopped"),),
    "silent": (replace(peer("n1", "member"), presence="silent"),),
    "cut off": (replace(peer("n1", "member"), presence="disconnected"),),
    "this one too": (peer("n1", "member"), peer("n0", "stopped")),
}


@given(st.lists(st.tuples(st.sampled_from([*SAID]), st.sampled_from(["", "running", "stopped"]), st.booleans())))
def test_a_status_does_not_depend_on_the_calls_before(calls: list[tuple[str, str, bool]]) -> None:
    """What the last call found is used again only where a call without it finds the same, on whichever node."""
    for now, (said, phase, is_other_node) in enumerate(calls):
        state = connected(LIMITS, PAIR, *SAID[said], phase=phase)
        if is_other_node:
            state = replace(state, node=replace(state.node, uuid="n1"))
        assert member_statuses(state, PAIR, now / 2) == member_statuses(state, replace(PAIR), now / 2)


def test_nodes_that_stand_still_cost_no_roll_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing changes, an idle step looks at no member again, and a changed member costs one look."""
    looks: list[str] = []
    look = member_status._member_status

    def counted(state: State, generation: Generation, member: Member, now: float) -> MemberStatus:
        looks.append(member.uuid)
        return look(state, generation, member, now)

    monkeypatch.setattr(member_status, "_member_status", counted)
    nodes = [f"n{number}" for number in range(64)]
    generation = replace(PAIR, members=tuple(Member(uuid, uuid, 1) for uuid in nodes))
    limits = Limits(max_nodes=len(nodes), startup_patience=0.0, planned_gap=0.0)
    state = connected(limits, generation, *(peer(uuid, "member") for uuid in sorted(nodes)), phase="running")
    state, _ = machine.step(state, events.Tick(), 100.0)
    looks.clear()
    state, _ = machine.step(state, events.Tick(), 101.0)
    idle = [*looks]
    machine.step(state, events.PeerSeen(peer("n7", "member", startup_seconds=1)), 102.0)

    assert idle == []
    assert set(looks) == {"n0", "n7"}
    assert len(looks) == 2
