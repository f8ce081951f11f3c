"""Where each member of a generation stands, from what the store tells."""

from __future__ import annotations

from dataclasses import dataclass

from .events import Peer
from .records import Generation, Member, NodeRecord
from .state import State, record


@dataclass(frozen=True)
class MemberStatus:
    """One member, as far as ending its generation is concerned."""

    member: Member
    done: bool = False
    """It said that none of its workers trains in this generation any more: none is left, or those that live parked."""
    finished: bool = False
    """They all exited 0 by themselves."""
    gone: bool = False
    """It does not answer, long enough to go on without it."""
    dead: bool = False
    """Certainly none of its workers is left: its supervisor or the dead-man timer ended them, or its pod was made
    again."""
    leaving: bool = False
    orphaned: bool = False
    """It was cut off so long that its workers were ended."""
    live: NodeRecord | None = None
    """Its record, where it can be in the next generation."""
    stepped: bool = False
    """Its workers of this generation have made a step."""
    hung_at: tuple[int, ...] = ()
    """In a hang: their lowest step, and the local rank that is there."""
    failure: str = ""
    """How they failed before any step."""

    @property
    def busy(self) -> bool:
        """It lives and has not stopped: wait for it."""
        return not (self.done or self.gone)

    @property
    def lost(self) -> bool:
        """It takes no part any more, and not because it finished: what follows is a membership change."""
        return not self.finished and (self.gone or self.leaving or self.orphaned or (self.done and self.live is None))


def member_statuses(state: State, generation: Generation, now: float) -> tuple[MemberStatus, ...]:
    """Of every member, in rank order."""
    return tuple(_member_status(state, generation, member, now) for member in generation.members)


def _member_status(state: State, generation: Generation, member: Member, now: float) -> MemberStatus:
    # This node: what it knows of itself is newer than its record in the store.
    if member.uuid == state.node.uuid:
        return _seen(generation, member, record(state))
    peer = state.store.peer(member.uuid)
    # The store has no record of it.
    if peer is None:
        return _unseen(state, generation, member, now)
    # While it is only silent or disconnected it may come back, so the others go on without it and do not count it dead.
    dead = _is_dead(state, peer, now)
    gone = dead or peer.presence == "silent" or _is_cut_off(state, generation, peer, now)
    return _seen(generation, member, peer.record, gone=gone, dead=dead)


def _is_dead(state: State, peer: Peer, now: float) -> bool:
    """Its supervisor said so, its dead-man timer has fired, or its pod's successor is here."""
    if peer.presence in {"live", "ended"}:
        return peer.presence == "ended"
    away_for = now - peer.since
    if peer.presence == "disconnected" and away_for >= state.limits.reconnect_wait and _is_replaced(state, peer):
        return True
    return away_for >= state.limits.dead_after


def _is_cut_off(state: State, generation: Generation, peer: Peer, now: float) -> bool:
    """Its connection ended, and it does not come back; or its peers' collectives failed: it crashed."""
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
        hung_at=said.hung_at if ours else (),
        failure=said.failure if ours else "",
    )


def _unseen(state: State, generation: Generation, member: Member, now: float) -> MemberStatus:
    """A member without a record: the store forgot it long after its end, or was reborn and has yet to see it.

    After a rebirth a member trains on until it is back, so it is not counted out while all is well; once the
    generation has to stop anyway it is waited for briefly. Without a confirmed record it may be in a generation that
    only it knows, so nothing but its death will do.
    """
    # The store that committed the generation had its record and has forgotten it: it ended long ago.
    if generation.incarnation == state.store.incarnation:
        return MemberStatus(member, gone=True, dead=True)
    # The store was reborn: the member has been out of reach past its dead-man timer, or a successor has its name.
    returned = now - state.store.since >= state.limits.reconnect_wait and _has_successor(state, generation, member)
    dead = now - state.store.since >= state.limits.dead_after or returned
    # Or it is late to reconnect while the generation stops: the others go on without it.
    stopping = generation.phase in {"draining", "broken"}
    waited = now - max(state.store.since, state.phase_since) >= state.limits.reconnect_wait
    return MemberStatus(member, gone=dead or (generation.confirmed and stopping and waited), dead=dead)


def _is_replaced(state: State, peer: Peer) -> bool:
    """A launcher with the same pod name has come since: a pod is made again only when the former is gone."""
    said = peer.record
    return any(
        other.record.uuid != said.uuid and other.arrived > peer.departed for other in state.store.named(said.name)
    )


def _has_successor(state: State, generation: Generation, member: Member) -> bool:
    """The same for a member that a reborn store has not seen; a namesake beside it in the generation proves nothing."""
    beside = {other.uuid for other in generation.members}
    return any(peer.record.uuid not in beside for peer in state.store.named(member.name))
