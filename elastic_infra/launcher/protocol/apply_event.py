"""Events into state: each function takes one fact down and decides nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from . import events
from .records import Cause, Generation, order_of
from .state import LocalWorkers, State, Store, with_store, with_workers


def apply_event(state: State, event: events.Event, now: float) -> State:
    """The state with this event taken down."""
    return _HANDLERS[type(event)](state, event, now)


def _tick(state: State, event: events.Tick, now: float) -> State:
    return state


def _store_connected(state: State, event: events.StoreConnected, now: float) -> State:
    since = state.store.since if event.incarnation == state.store.incarnation else now
    peers = tuple(sorted(event.peers, key=_uuid))
    store = Store(
        connected=True,
        incarnation=event.incarnation,
        since=since,
        clock_offset=event.unix_time - now,
        peers=peers,
        master=event.master,
    )
    # What was written last on the connection before may not have arrived.
    workers = replace(state.workers, met=False) if state.workers else None
    state = replace(state, store=store, published=None, workers=workers)
    return _generation(state, event.generation, event.version)


def _store_lost(state: State, event: events.StoreLost, now: float) -> State:
    sure = state.has_latest and (event.fresh or not state.store.connected)
    state = _verified(state, succeeded=False)
    return replace(state, has_latest=sure, store=replace(state.store, connected=False, is_setting=False))


def _generation_seen(state: State, event: events.GenerationSeen, now: float) -> State:
    if event.generation is None:
        state = replace(state, latest_seen=None)  # a node deleted the final record: do not restore it
    return _generation(state, event.generation, event.version)


def _generation(state: State, generation: Generation | None, version: int) -> State:
    state = with_store(state, replace(state.store, generation=generation, version=version))
    if generation is None or generation.order < order_of(state.latest_seen):
        return state
    complete = generation.incarnation == state.store.incarnation or generation.confirmed
    sure = complete or (state.has_latest and state.latest_seen is not None)
    return replace(state, latest_seen=generation, has_latest=sure)


def peers_seen(state: State, peers: Iterable[events.Peer]) -> State:
    """The state with several peers taken down as they are now."""
    return with_store(state, state.store.with_peers(peers))


def _peer_seen(state: State, event: events.PeerSeen, now: float) -> State:
    return peers_seen(state, (event.peer,))


def _uuid(peer: events.Peer) -> str:
    return peer.record.uuid


def _peer_forgotten(state: State, event: events.PeerForgotten, now: float) -> State:
    peers = tuple(peer for peer in state.store.peers if peer.record.uuid != event.node)
    return with_store(state, replace(state.store, peers=peers))


def _master_seen(state: State, event: events.MasterSeen, now: float) -> State:
    return with_store(state, replace(state.store, master=event.master))


def _compare_and_set_done(state: State, event: events.CompareAndSetDone, now: float) -> State:
    return _verified(with_store(state, replace(state.store, is_setting=False)), succeeded=event.succeeded)


def _verified(state: State, *, succeeded: bool) -> State:
    workers = state.workers
    if workers is None or workers.suspension != "verifying":
        return state
    return with_workers(state, replace(workers, suspension="verified" if succeeded else "suspended"))


def _ready(state: State, event: events.Ready, now: float) -> State:
    return replace(state, ready=True)


def _port_chosen(state: State, event: events.PortChosen, now: float) -> State:
    workers = _workers(state, event.generation)
    return with_workers(state, replace(workers, port=event.port)) if workers else state


def _worker_exited(state: State, event: events.WorkerExited, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None or not workers.active:
        return state
    exits = (*workers.exits, (event.local_rank, event.exit_code, event.stopped))
    if workers.on_standby:
        return with_workers(state, replace(workers, exits=exits))
    workers = replace(workers, exits=exits, start_failure=workers.start_failure or _start_failure(workers, event))
    ended_by_us = workers.told or workers.suspension or event.local_rank in workers.killed
    # A parked worker trains nothing that could fail: another one takes its place.
    if event.exit_code != 0 and not ended_by_us and workers.failure is None and workers.phase in _TRAINS:
        workers = replace(workers, failure=_failure(state, workers, event, now))
    return with_workers(state, workers)


def _start_failure(workers: LocalWorkers, event: events.WorkerExited) -> str:
    # A worker whose script had ended by an exception would have exited with 1: Python's own end takes seconds after a
    # fork of torch, and a signal may come before that end.
    code = 1 if workers.failing and event.exception and event.exit_code < 0 else event.exit_code
    # A signal says nothing about the script, and a worker that was told to end may exit with any code.
    if workers.stepped_at is not None or code <= 0 or (workers.told and not event.exception):
        return ""
    return f"{code} {event.exception}".strip()


def _failure(state: State, workers: LocalWorkers, event: events.WorkerExited, now: float) -> Cause:
    within = now - workers.started <= state.limits.startup_window
    return Cause(
        kind="worker_failed",
        node=state.node.name or state.node.address,
        uuid=state.node.uuid,
        rank=_rank(state, event.local_rank),
        exit_code=event.exit_code,
        step=workers.newest_step,
        message=event.message,
        startup=within and state.limits.startup_window > 0 and event.exit_code > 0 and workers.newest_step is None,
    )


def _rank(state: State, local_rank: int) -> int | None:
    before = 0
    for member in state.generation.members if state.generation else ():
        if member.uuid == state.node.uuid:
            return before + local_rank
        before += member.local_world_size
    return None


def _workers_suspended(state: State, event: events.WorkersSuspended, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None or not workers.active:
        return state
    return with_workers(state, replace(workers, suspension="suspended"))


def _workers_gone(state: State, event: events.WorkersGone, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None or not workers.active:
        return state
    if workers.on_standby:
        return replace(state, workers=None, standby_failed=True)
    natural = not workers.told and len(workers.exits) >= state.node.local_world_size
    natural = natural or (workers.told and _all_finished(workers, state.node.local_world_size))
    clean = all(code == 0 for _, code, _ in workers.exits)
    finished = natural and clean and not event.orphaned and workers.failure is None
    if event.orphaned and workers.failure is None:
        orphaned = Cause("orphaned", state.node.name or state.node.address, state.node.uuid)
        workers = replace(workers, failure=orphaned)
    return with_workers(state, replace(workers, phase="finished" if finished else "stopped", suspension=""))


def _all_finished(workers: LocalWorkers, local_world_size: int) -> bool:
    """Whether all ended by themselves although a stop step lay ahead: none had been told to stop at that step."""
    by_stop_step = workers.stop_step is not None and workers.stop_step_agreed and not workers.parked
    return (
        by_stop_step and len(workers.exits) >= local_world_size and not any(stopped for _, _, stopped in workers.exits)
    )


def _workers_in(state: State, event: events.WorkersIn, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None:
        return state
    # The script has started here, so the next workers on standby may too.
    workers = replace(workers, can_move=event.can_move, behind=False)
    return with_workers(replace(state, standby_failed=False), workers)


def _worker_parked(state: State, event: events.WorkerParked, now: float) -> State:
    workers = _workers(state, event.generation)
    # A worker that is being killed will not be there for the next generation, although it parked at the last moment.
    known = workers is not None and event.local_rank in (*workers.parked, *workers.killed)
    if workers is None or workers.phase not in _TRAINS or known:
        return state
    return with_workers(state, replace(workers, parked=tuple(sorted({*workers.parked, event.local_rank}))))


def _worker_stuck(state: State, event: events.WorkerStuck, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None or workers.phase != "parking":
        return state
    return with_workers(state, replace(workers, stuck=tuple(sorted({*workers.stuck, event.local_rank}))))


def _step_broke(state: State, event: events.StepBroke, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None or workers.phase != "running" or workers.broke is not None:
        return state
    node, rank = state.node.name or state.node.address, _rank(state, event.local_rank)
    broke = Cause("worker_failed", node, state.node.uuid, rank, None, workers.newest_step, event.message)
    return with_workers(state, replace(workers, broke=broke, broke_at=now))


def _steps_seen(state: State, event: events.StepsSeen, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None:
        return state
    first = workers.first_checkpoint if workers.highest is not None else event.checkpoint
    workers = replace(
        workers,
        lowest=event.lowest,
        slowest=event.slowest,
        highest=event.highest,
        per_second=event.per_second or workers.per_second,
        step_seconds=event.step_seconds,
        checkpoint=event.checkpoint,
        first_checkpoint=first,
        failing=event.failing,
    )
    if workers.stepped_at is None and event.stepped_at is not None:
        startup_seconds = math.ceil(max(0.0, event.stepped_at - workers.started))
        workers = replace(workers, stepped_at=event.stepped_at, startup_seconds=startup_seconds)
    if (
        workers.stop_step is not None
        and workers.accepted != workers.stop_step
        and (event.highest or 0) < workers.stop_step
    ):
        workers = replace(workers, accepted=workers.stop_step)
    return with_workers(state, workers)


def _hang_seen(state: State, event: events.HangSeen, now: float) -> State:
    workers = _workers(state, event.generation)
    if workers is None or workers.phase != "running" or workers.failure is not None:
        return state
    node = state.node.name or state.node.address
    rank = _rank(state, event.local_rank)
    hang = Cause("hang", node, state.node.uuid, rank, None, workers.highest, event.message)
    return with_workers(state, replace(workers, failure=hang))


def _signal_seen(state: State, event: events.SignalSeen, now: float) -> State:
    return state if state.leaving else replace(state, signal=event.signal, leaving_since=now)


def _workers(state: State, number: int) -> LocalWorkers | None:
    return state.workers if state.workers is not None and state.workers.identity[0] == number else None


_TRAINS: Final = frozenset({"running", "stopping", "parking"})
"""Phases in which the workers of a node are still in their generation."""

_HANDLERS: Final[Mapping[type, Callable[[State, Any, float], State]]] = {
    events.Tick: _tick,
    events.StoreConnected: _store_connected,
    events.StoreLost: _store_lost,
    events.GenerationSeen: _generation_seen,
    events.PeerSeen: _peer_seen,
    events.PeerForgotten: _peer_forgotten,
    events.MasterSeen: _master_seen,
    events.CompareAndSetDone: _compare_and_set_done,
    events.Ready: _ready,
    events.PortChosen: _port_chosen,
    events.WorkerExited: _worker_exited,
    events.WorkersSuspended: _workers_suspended,
    events.WorkersGone: _workers_gone,
    events.WorkersIn: _workers_in,
    events.WorkerParked: _worker_parked,
    events.WorkerStuck: _worker_stuck,
    events.StepBroke: _step_broke,
    events.StepsSeen: _steps_seen,
    events.HangSeen: _hang_seen,
    events.SignalSeen: _signal_seen,
}
