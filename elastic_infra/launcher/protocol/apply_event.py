"""Events into state: each takes one fact down and decides nothing."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from . import messages
from .records import Cause, Generation, order_of
from .state import Group, State, Store, with_group, with_store


def fold(state: State, event: messages.Event, now: float) -> State:
    """The state with this event taken down."""
    return _FOLDS[type(event)](state, event, now)


def _tick(state: State, event: messages.Tick, now: float) -> State:
    return state


def _store_connected(state: State, event: messages.StoreConnected, now: float) -> State:
    since = state.store.since if event.epoch == state.store.epoch else now
    peers = tuple(sorted(event.peers, key=_uuid))
    store = Store(connected=True, epoch=event.epoch, since=since, peers=peers, master=event.master)
    state = replace(state, store=store, published=None)
    return _generation(state, event.generation, event.version)


def _store_lost(state: State, event: messages.StoreLost, now: float) -> State:
    sure = state.sure and (event.fresh or not state.store.connected)
    return replace(state, sure=sure, store=replace(state.store, connected=False, swapping=False))


def _generation_seen(state: State, event: messages.GenerationSeen, now: float) -> State:
    if event.generation is None:
        state = replace(state, known=None)  # deleted: an old end that somebody forgot is not to be brought back
    return _generation(state, event.generation, event.version)


def _generation(state: State, generation: Generation | None, version: int) -> State:
    state = with_store(state, replace(state.store, generation=generation, version=version))
    if generation is None or generation.order < order_of(state.known):
        return state
    complete = generation.epoch == state.store.epoch or generation.trusted
    sure = complete or (state.sure and state.known is not None)
    return replace(state, known=generation, sure=sure)


def _peer_seen(state: State, event: messages.PeerSeen, now: float) -> State:
    uuid = event.peer.record.uuid
    peers = [peer for peer in state.store.peers if peer.record.uuid != uuid]
    bisect.insort(peers, event.peer, key=_uuid)
    return with_store(state, replace(state.store, peers=tuple(peers)))


def _uuid(peer: messages.Peer) -> str:
    return peer.record.uuid


def _peer_forgotten(state: State, event: messages.PeerForgotten, now: float) -> State:
    peers = tuple(peer for peer in state.store.peers if peer.record.uuid != event.node)
    return with_store(state, replace(state.store, peers=peers))


def _master_seen(state: State, event: messages.MasterSeen, now: float) -> State:
    return with_store(state, replace(state.store, master=event.master))


def _swap_done(state: State, event: messages.SwapDone, now: float) -> State:
    return with_store(state, replace(state.store, swapping=False))


def _ready(state: State, event: messages.Ready, now: float) -> State:
    return replace(state, ready=True)


def _port_chosen(state: State, event: messages.PortChosen, now: float) -> State:
    group = _group(state, event.generation)
    return with_group(state, replace(group, port=event.port)) if group else state


def _worker_exited(state: State, event: messages.WorkerExited, now: float) -> State:
    group = _group(state, event.generation)
    if group is None or not group.active:
        return state
    exits = (*group.exits, (event.local_rank, event.exit_code, event.stopped))
    group = replace(group, exits=exits)
    if event.exit_code != 0 and not group.told and group.failure is None:
        group = replace(group, failure=_failure(state, group, event, now))
    return with_group(state, group)


def _failure(state: State, group: Group, event: messages.WorkerExited, now: float) -> Cause:
    within = now - group.started <= state.rules.startup_window
    return Cause(
        kind="worker_failed",
        node=state.node.name or state.node.address,
        uuid=state.node.uuid,
        rank=_rank(state, event.local_rank),
        exit_code=event.exit_code,
        step=group.highest,
        message=event.message,
        startup=within and state.rules.startup_window > 0 and event.exit_code > 0 and group.highest is None,
    )


def _rank(state: State, local_rank: int) -> int | None:
    before = 0
    for member in state.generation.members if state.generation else ():
        if member.uuid == state.node.uuid:
            return before + local_rank
        before += member.local_world_size
    return None


def _workers_gone(state: State, event: messages.WorkersGone, now: float) -> State:
    group = _group(state, event.generation)
    if group is None or not group.active:
        return state
    natural = not group.told and len(group.exits) >= state.node.local_world_size
    natural = natural or (group.told and _all_finished(group, state.node.local_world_size))
    clean = all(code == 0 for _, code, _ in group.exits)
    finished = natural and clean and not event.orphaned and group.failure is None
    if event.orphaned and group.failure is None:
        orphaned = Cause("orphaned", state.node.name or state.node.address, state.node.uuid)
        group = replace(group, failure=orphaned)
    return with_group(state, replace(group, phase="finished" if finished else "stopped"))


def _all_finished(group: Group, local_world_size: int) -> bool:
    """All ended by themselves although a stop step lay ahead: none had been told to stop at it."""
    by_fence = group.fence is not None and group.fence_agreed
    return by_fence and len(group.exits) >= local_world_size and not any(stopped for _, _, stopped in group.exits)


def _steps_seen(state: State, event: messages.StepsSeen, now: float) -> State:
    group = _group(state, event.generation)
    if group is None:
        return state
    first = group.first_checkpoint if group.highest is not None else event.checkpoint
    group = replace(
        group,
        lowest=event.lowest,
        highest=event.highest,
        per_second=event.per_second,
        checkpoint=event.checkpoint,
        first_checkpoint=first,
    )
    if group.fence is not None and group.accepted != group.fence and (event.highest or 0) < group.fence:
        group = replace(group, accepted=group.fence)
    return with_group(state, group)


def _hang_seen(state: State, event: messages.HangSeen, now: float) -> State:
    group = _group(state, event.generation)
    if group is None or group.phase != "running" or group.failure is not None:
        return state
    node = state.node.name or state.node.address
    rank = _rank(state, event.local_rank)
    hang = Cause("hang", node, state.node.uuid, rank, None, group.highest, event.message)
    return with_group(state, replace(group, failure=hang))


def _signal_seen(state: State, event: messages.SignalSeen, now: float) -> State:
    return state if state.leaving else replace(state, signal=event.signal, leaving_since=now)


def _group(state: State, number: int) -> Group | None:
    return state.group if state.group is not None and state.group.identity[0] == number else None


_FOLDS: Final[Mapping[type, Callable[[State, Any, float], State]]] = {
    messages.Tick: _tick,
    messages.StoreConnected: _store_connected,
    messages.StoreLost: _store_lost,
    messages.GenerationSeen: _generation_seen,
    messages.PeerSeen: _peer_seen,
    messages.PeerForgotten: _peer_forgotten,
    messages.MasterSeen: _master_seen,
    messages.SwapDone: _swap_done,
    messages.Ready: _ready,
    messages.PortChosen: _port_chosen,
    messages.WorkerExited: _worker_exited,
    messages.WorkersGone: _workers_gone,
    messages.StepsSeen: _steps_seen,
    messages.HangSeen: _hang_seen,
    messages.SignalSeen: _signal_seen,
}
