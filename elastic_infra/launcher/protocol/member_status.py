"""The status of each member of a generation, from this node's picture of the store."""

from __future__ import annotations

from dataclasses import dataclass

from .events import Peer
from .records import Generation, Member, NodeRecord
from .state import State, record


@dataclass(frozen=True)
class MemberStatus:
    """The facts about one member that decide how its generation ends."""

    member: Member
    done: bool = False
    """The member said that none of its workers trains in this generation any more: all have ended or parked."""
    finished: bool = False
    """All workers of the member exited 0 by themselves."""
    gone: bool = False
    """The member has not answered for long enough to go on without it."""
    dead: bool = False
    """None of the member's workers is left for certain: its supervisor or the dead-man timer ended them, or its pod was
    recreated."""
    leaving: bool = False
    orphaned: bool = False
    """The member was cut off for so long that its workers were ended."""
    live: NodeRecord | None = None
    """The member's record, where the member can be in the next generation."""
    stepped: bool = False
    """The member's workers of this generation have made a step."""
    can_move: bool = False
    """The member's workers can be moved out of this generation, or have parked."""
    has_state: bool = False
    """The same, and they have been in the generation's group, so that they have its state."""
    hung_at: tuple[int, ...] = ()
    """In a hang: the lowest step of the member's workers, and the local rank at that step."""
    failure: str = ""
    """How the member's workers failed before any step; empty where they did not."""

    @property
    def busy(self) -> bool:
        """Whether the member lives and has not stopped, so that the others wait for it."""
        return not (self.done or self.gone)

    @property
    def lost(self) -> bool:
        """Whether the member takes no part any more without having finished: a membership change follows."""
        return not self.finished and (self.gone or self.leaving or self.orphaned or (self.done and self.live is None))


@dataclass(frozen=True)
class _RollCall:
    """The statuses of one generation's members, with what they were made of."""

    generation: Generation | None = None
    peers: tuple[Peer, ...] = ()
    said: tuple[Peer | None, ...] = ()
    """Each member's peer where its status follows from its record alone, as for a live peer; None for the others."""
    own: NodeRecord | None = None
    statuses: tuple[MemberStatus, ...] = ()
    is_settled: bool = False
    """Whether no status depends on the time or on other parts of the state."""


_last = _RollCall()
"""Of the last call: a step calls several times, and between two steps mostly nothing changes. The result is that of a
call without it, so that the function stays pure."""


def member_statuses(state: State, generation: Generation, now: float) -> tuple[MemberStatus, ...]:
    """The status of every member, in rank order."""
    global _last  # noqa: PLW0603  a memory of one result, compared with what it was made of before it is used
    last, peers, own = _last, state.store.peers, record(state)
    if last.generation is not generation or last.own is None or last.own.uuid != own.uuid:
        last = _RollCall()
    elif last.is_settled and last.peers is peers and last.own == own:
        return last.statuses
    found = (state.store.peer(member.uuid) for member in generation.members)
    said = tuple(peer if peer is not None and peer.presence == "live" else None for peer in found)
    known = last.said or (None,) * len(said)
    statuses = tuple(
        last.statuses[place]
        if peer is not None and peer is known[place] and member.uuid != own.uuid
        else _member_status(state, generation, member, now)
        for place, (member, peer) in enumerate(zip(generation.members, said, strict=True))
    )
    pairs = zip(generation.members, said, strict=True)
    is_settled = all(peer is not None or member.uuid == own.uuid for member, peer in pairs)
    _last = _RollCall(generation, peers, said, own, statuses, is_settled)
    return statuses


def _member_status(state: State, generation: Generation, member: Member, now: float) -> MemberStatus:
    # This node: its own state is newer than its record in the store.
    if member.uuid == state.node.uuid:
        return _seen(generation, member, record(state))
    peer = state.store.peer(member.uuid)
    # The store has no record of the member.
    if peer is None:
        return _unseen(state, generation, member, now)
    # A silent or disconnected member may come back, so the others go on without it and do not count it dead.
    dead = _is_dead(state, peer, now)
    gone = dead or peer.presence == "silent" or _is_cut_off(state, generation, peer, now)
    return _seen(generation, member, peer.record, gone=gone, dead=dead)


def _is_dead(state: State, peer: Peer, now: float) -> bool:
    """Whether the member's supervisor said farewell, its dead-man timer has fired, or its pod's successor is here."""
    if peer.presence in {"live", "ended"}:
        return peer.presence == "ended"
    away_for = now - peer.since
    if peer.presence == "disconnected" and away_for >= state.limits.reconnect_wait and _is_replaced(state, peer):
        return True
    return away_for >= state.limits.dead_after


def _is_cut_off(state: State, generation: Generation, peer: Peer, now: float) -> bool:
    """Whether the member's connection ended without a new one in time, or its crash failed the peers' collectives."""
    waited = now - peer.since >= state.limits.reconnect_wait
    own = state.workers_of(generation)
    collectives_failed = generation.phase == "broken" or (own is not None and own.failing)
    return peer.presence == "disconnected" and (waited or collectives_failed)


def _seen(
    generation: Generation, member: Member, said: NodeRecord, *, gone: bool = False, dead: bool = False
) -> MemberStatus:
    ours = said.identity == generation.identity
    return MemberStatus(
        member,
        done=ours and said.state in {"parked", "stopped", "finished", "left", "ready", "warming"},
        finished=ours and said.state == "finished",
        gone=gone,
        dead=dead,
        leaving=said.leaving,
        orphaned=ours and said.orphaned,
        live=None if gone or said.leaving else said,
        stepped=ours and said.startup_seconds is not None,
        can_move=ours and not gone and _can_move(said),
        has_state=ours and not gone and _can_move(said) and not said.behind,
        hung_at=said.hung_at if ours else (),
        failure=said.failure if ours else "",
    )


def _can_move(said: NodeRecord) -> bool:
    return said.state == "parked" or (said.can_move and said.state in {"member", "draining"})


def _unseen(state: State, generation: Generation, member: Member, now: float) -> MemberStatus:
    """A member without a record: the store forgot it long after its end, or was reborn and has yet to see it.

    Whether the member had finished is in the generation's own record, which nodes bring into a reborn store.
    After the store's rebirth a member trains on until it has reconnected, so the member counts as present while the
    generation runs; once the generation has to stop, the others wait for it briefly. Without a confirmed record the
    member may be in a generation that only it knows, so only its death counts.
    """
    # None of its workers is left, wherever its own record is.
    if member.uuid in generation.finished:
        return MemberStatus(member, done=True, finished=True, gone=True, dead=True)
    # The store that committed the generation had the member's record and has dropped it: the member ended long ago.
    if generation.incarnation == state.store.incarnation:
        return MemberStatus(member, gone=True, dead=True)
    # The store was reborn: the member has been out of reach past its dead-man timer, or a successor has its name.
    returned = now - state.store.since >= state.limits.reconnect_wait and _has_successor(state, generation, member)
    dead = now - state.store.since >= state.limits.dead_after or returned
    # The member is late to reconnect while the generation stops: the others go on without it.
    stopping = generation.phase in {"draining", "broken"}
    waited = now - max(state.store.since, state.phase_since) >= state.limits.reconnect_wait
    return MemberStatus(member, gone=dead or (generation.confirmed and stopping and waited), dead=dead)


def _is_replaced(state: State, peer: Peer) -> bool:
    """Whether a launcher with the same pod name has come since: a pod is recreated only when the former is gone."""
    said = peer.record
    return any(
        other.record.uuid != said.uuid and other.arrived > peer.departed for other in state.store.named(said.name)
    )


def _has_successor(state: State, generation: Generation, member: Member) -> bool:
    """The same for a member that a reborn store has not seen; a namesake in the same generation is no proof."""
    beside = {other.uuid for other in generation.members}
    return any(peer.record.uuid not in beside for peer in state.store.named(member.name))
