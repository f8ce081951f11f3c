"""The local workers: when they start, why, how and at which step they are stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from . import actions, ranks
from .records import Generation, Master, Member, order_of
from .state import LocalWorkers, State, with_workers

First = Literal["SIGTERM", "stacks", "SIGKILL", "none"]
Step = tuple[State, tuple[actions.Action, ...]]

_STRENGTH: Final = {"none": 0, "SIGTERM": 1, "stacks": 2, "SIGKILL": 2}


def enter(state: State, now: float) -> Step:
    """Take the place this node has in a newly committed generation; never before the old workers are gone."""
    generation = state.generation
    if generation is None or state.own_member() is None or state.active or state.workers_of(generation) is not None:
        return state, ()
    if not is_newest(state) or generation.phase == "final" or not state.ready:
        return state, ()
    startable = generation.phase in {"running", "proposed"} and not state.leaving
    return with_workers(state, LocalWorkers(generation.identity, "preparing" if startable else "stopped", now)), ()


def start(state: State, now: float) -> Step:
    """Start the workers once the generation's meeting place is known."""
    generation, workers, place = state.generation, state.workers, state.own_member()
    if workers is None or workers.phase != "preparing" or not state.store.connected or not is_newest(state):
        return state, ()
    if generation is None or place is None or not _may_start(state, generation, workers):
        return with_workers(state, replace(workers, phase="stopped")), ()
    if generation.members[0].uuid != state.node.uuid:
        master = state.store.master
        met = master is not None and master.identity == generation.identity
        return _started(state, generation, workers, place, master, now) if met and master else (state, ())
    if workers.port:
        return _started(state, generation, workers, place, _master(state, workers), now)
    if workers.port_asked:
        return state, ()
    return with_workers(state, replace(workers, port_asked=True)), (actions.ChoosePort(generation.number),)


def meet(state: State, now: float) -> Step:
    """The leader publishes the meeting place, once in every life of the store."""
    generation, workers = state.generation, state.workers_of(state.generation)
    if generation is None or workers is None or not workers.port or not state.store.connected:
        return state, ()
    if workers.met_in == state.store.incarnation or generation.members[0].uuid != state.node.uuid:
        return state, ()
    workers = replace(workers, met_in=state.store.incarnation)
    return with_workers(state, workers), (actions.PublishMaster(_master(state, workers)),)


def is_newest(state: State) -> bool:
    """Whether the store knows all that this node knows: a reborn one does not at first."""
    return state.latest_seen is None or order_of(state.generation) >= state.latest_seen.order


def _master(state: State, workers: LocalWorkers) -> Master:
    number, incarnation = workers.identity
    return Master(number, incarnation, state.node.address, workers.port)


def _may_start(state: State, generation: Generation, workers: LocalWorkers) -> bool:
    same = generation.identity == workers.identity
    return same and generation.phase in {"running", "proposed"} and not state.leaving


def _started(
    state: State, generation: Generation, workers: LocalWorkers, place: Member, master: Master, now: float
) -> Step:
    start = actions.StartWorkers(
        generation=generation.number,
        attempt=generation.attempt,
        restart_count=generation.budget.charged,
        first_rank=ranks.first_rank(generation.members, place.uuid),
        local_world_size=place.local_world_size,
        world_size=ranks.world_size(generation.members),
        group_rank=generation.members.index(place),
        group_world_size=len(generation.members),
        master_address=master.address,
        master_port=master.port,
        cause=generation.cause,
    )
    return with_workers(state, replace(workers, phase="running", started=now)), (start,)


def set_stop_step(state: State, now: float) -> Step:
    """Keep the stop step in the progress memory what the generation record says."""
    generation, workers = state.generation, state.workers_of(state.generation)
    if generation is None or workers is None or workers.phase != "running" or generation.stop_step is None:
        return state, ()
    agreed = generation.phase == "draining"
    if generation.phase not in {"proposed", "draining"} or (workers.stop_step, workers.stop_step_agreed) == (
        generation.stop_step,
        agreed,
    ):
        return state, ()
    workers = replace(workers, stop_step=generation.stop_step, stop_step_agreed=agreed)
    return with_workers(state, workers), (actions.SetStopStep(generation.number, generation.stop_step, agreed),)


def stop(state: State, now: float) -> Step:
    """Order the local workers to stop where there is a reason, or harder and earlier than before."""
    workers = state.workers
    order = _order(state, workers, now) if workers is not None and workers.active else None
    if workers is None or order is None:
        return state, ()
    by = now + order.grace
    stronger = _STRENGTH[order.first] > _STRENGTH[workers.stop_first]
    if workers.phase == "stopping" and not stronger and by >= workers.stop_by - 0.05:
        return state, ()
    by = min(by, workers.stop_by) if workers.phase == "stopping" else by
    told = workers.told or order.told
    workers = replace(workers, phase="stopping", stop_by=by, stop_first=order.first, told=told)
    action = actions.StopWorkers(workers.identity[0], max(0.0, by - now), order.first, order.reason)
    return with_workers(state, workers), (action,)


@dataclass(frozen=True)
class _Order:
    first: First
    grace: float
    reason: str
    told: bool = True


def _order(state: State, workers: LocalWorkers, now: float) -> _Order | None:
    """The most urgent reason to stop, None while there is none."""
    if len(workers.exits) >= state.node.local_world_size:
        return _Order("SIGKILL", 0.0, "clean up what the workers left", told=False)
    return _own_failure(state, workers) or _departure(state, now) or _generation_ended(state, workers)


def _own_failure(state: State, workers: LocalWorkers) -> _Order | None:
    if workers.failure is None:
        return None
    if workers.failure.kind == "hang":
        return _Order("stacks", 0.0, "hang")
    return _Order("SIGTERM", state.limits.failure_grace, "a worker of this node failed")


def _departure(state: State, now: float) -> _Order | None:
    """SIGTERM came: an agreed stop is better, but only while there is time and a store to agree through."""
    if state.leaving_since is None:
        return None
    end = state.leaving_since + state.limits.shutdown_grace
    if state.store.connected and now < end - state.limits.leave_margin:
        return None
    return _Order("SIGTERM", max(0.0, end - now), "this node was told to end")


def _generation_ended(state: State, workers: LocalWorkers) -> _Order | None:
    generation = state.generation
    limits = state.limits
    if generation is None or not is_newest(state):
        return None
    if generation.identity != workers.identity:
        return _Order("SIGTERM", limits.failure_grace, "the job goes on in a later generation")
    if generation.phase in {"broken", "final"}:
        hung = generation.cause is not None and generation.cause.kind == "hang"
        broke = _Order("SIGTERM", limits.failure_grace, "the generation broke")
        return _Order("stacks", 0.0, "a peer hangs, so these workers do") if hung else broke
    return _planned(state, generation, workers) if generation.phase == "draining" else None


def _planned(state: State, generation: Generation, workers: LocalWorkers) -> _Order | None:
    """Without a stop step SIGTERM, with one nothing before it is reached."""
    if generation.stop_step is None:
        return _Order("SIGTERM", state.limits.shutdown_grace, "a planned change")
    reached = workers.highest is not None and workers.highest >= generation.stop_step
    if reached or workers.exits:
        return _Order("none", state.limits.shutdown_grace, "a planned change at an agreed step")
    return None
