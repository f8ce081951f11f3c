"""The local workers: when they start, why, how and at which step they are stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from . import actions, blame, move, ranks, standby
from .member_status import member_statuses
from .records import Generation, Master, Member, order_of
from .state import LocalWorkers, State, with_workers

First = Literal["SIGTERM", "stacks", "SIGKILL", "none"]
Step = tuple[State, tuple[actions.Action, ...]]

START_VERDICT_SECONDS: Final = 60.0
"""How long workers may take at most to fail as a peer's did, where the number of workers is in question."""

_STRENGTH: Final = {"none": 0, "SIGTERM": 1, "stacks": 2, "SIGKILL": 2}


def enter(state: State, now: float) -> Step:
    """Take this node's place in a newly committed generation; never before the old workers are gone."""
    generation = state.generation
    # This node has no place in the generation, has old workers to stop first, or took its place already.
    if generation is None or state.own_member() is None or state.workers_of(generation) is not None:
        return state, ()
    if state.active and not move.carries_over(state):
        return state, ()
    # A reborn store shows an older record, the job is over, or this node cannot start workers yet.
    if not is_newest(state) or generation.phase == "final" or not state.ready:
        return state, ()
    # The parked workers go on in this generation with their processes.
    if state.workers is not None and move.carries_over(state):
        return with_workers(state, move.carried_over(state.workers, generation, now)), ()
    # A generation that ends before this node has started counts as stopped here, so that no peer waits for this node.
    startable = generation.phase in {"running", "proposed"} and not state.leaving
    return with_workers(state, LocalWorkers(generation.identity, "preparing" if startable else "stopped", now)), ()


def start(state: State, now: float) -> Step:
    """Start the workers once the generation's meeting place is known."""
    generation, workers, place = state.generation, state.workers, state.own_member()
    # No workers are to be started, or the store cannot say whether this generation still stands.
    if workers is None or workers.phase != "preparing" or not state.store.connected or not is_newest(state):
        return state, ()
    # The generation ended, or this node was told to end, before its workers started.
    if generation is None or place is None or not _may_start(state, generation, workers):
        ended = move.parked_again(workers) if move.alive(workers) else replace(workers, phase="stopped")
        return with_workers(state, ended), ()
    # A follower waits for the leader's meeting place of this generation.
    if generation.members[0].uuid != state.node.uuid:
        master = state.store.master
        met = master is not None and master.identity == generation.identity
        return _started(state, generation, workers, place, master, now) if met and master else (state, ())
    # The leader starts as soon as it has a port, asks for one once, and waits for the answer.
    if workers.port:
        return _started(state, generation, workers, place, _master(state, workers), now)
    if workers.port_asked:
        return state, ()
    return with_workers(state, replace(workers, port_asked=True)), (actions.ChoosePort(generation.number),)


def meet(state: State, now: float) -> Step:
    """The leader publishes the meeting place, once on every connection to the store."""
    generation, workers = state.generation, state.workers_of(state.generation)
    # There is no port to publish yet, or no store to publish it in.
    if generation is None or workers is None or not workers.port or not state.store.connected:
        return state, ()
    # The meeting place was published on this connection, or another node leads.
    if workers.met or generation.members[0].uuid != state.node.uuid:
        return state, ()
    return with_workers(state, replace(workers, met=True)), (actions.PublishMaster(_master(state, workers)),)


def is_newest(state: State) -> bool:
    """Whether the store knows at least this node's newest record; a reborn store at first does not."""
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
        kept=move.alive(workers),
        behind=workers.behind,
    )
    running = replace(workers, phase="running", started=now, kept=(), exits=())
    return with_workers(state, running), (start,)


def set_stop_step(state: State, now: float) -> Step:
    """Keep the stop step in the progress memory equal to the generation record's."""
    generation, workers = state.generation, state.workers_of(state.generation)
    # No workers of this generation train here, or the generation has no stop step.
    if generation is None or workers is None or workers.phase != "running" or generation.stop_step is None:
        return state, ()
    agreed = generation.phase == "draining"
    # The generation is not stopping by a step, or the workers see this step already.
    if generation.phase not in {"proposed", "draining"} or (workers.stop_step, workers.stop_step_agreed) == (
        generation.stop_step,
        agreed,
    ):
        return state, ()
    workers = replace(workers, stop_step=generation.stop_step, stop_step_agreed=agreed)
    return with_workers(state, workers), (actions.SetStopStep(generation.number, generation.stop_step, agreed),)


def stop(state: State, now: float) -> Step:
    """Order the local workers to stop where there is a reason, or to stop harder or earlier than ordered before."""
    workers = state.workers
    order = _order(state, workers, now) if workers is not None and workers.active else None
    # No workers run here, or there is no reason to stop them.
    if workers is None or order is None:
        return state, ()
    by = now + order.grace
    stronger = _STRENGTH[order.first] > _STRENGTH[workers.stop_first]
    # The workers were told already, as hard and as early as this order asks.
    if workers.phase == "stopping" and not stronger and by >= workers.stop_by - 0.05:
        return state, ()
    by = min(by, workers.stop_by) if workers.phase == "stopping" else by
    told = workers.told or order.told
    workers = replace(workers, phase="stopping", stop_by=by, stop_first=order.first, told=told)
    saves = move.saves(state, now) if order.first == "none" else "nothing"
    action = actions.StopWorkers(workers.identity[0], max(0.0, by - now), order.first, order.reason, saves)
    return with_workers(state, workers), (action,)


def stands(state: State) -> bool:
    """Whether the generation of the local workers goes on with all of them, by the store's record."""
    generation, workers = state.generation, state.workers_of(state.generation)
    if generation is None or workers is None or not state.store.connected or not is_newest(state):
        return False
    known = generation.incarnation == state.store.incarnation or generation.confirmed
    whole = all(code == 0 for _, code, _ in workers.exits)
    return known and whole and generation.phase in {"running", "proposed", "draining"}


def resume(state: State, now: float) -> Step:
    """Let suspended workers go on once the store has confirmed their generation."""
    workers = state.workers
    if workers is None or workers.suspension != "verified":
        return state, ()
    if not stands(state):
        return with_workers(state, replace(workers, suspension="suspended")), ()
    line = "The workers were paused beyond the orphan timeout. Their generation stands: they go on."
    resumed = with_workers(state, replace(workers, suspension=""))
    return resumed, (actions.ResumeWorkers(workers.identity[0]), actions.Tell("warning", line))


@dataclass(frozen=True)
class _Order:
    first: First
    grace: float
    reason: str
    told: bool = True


def _order(state: State, workers: LocalWorkers, now: float) -> _Order | None:
    """The most urgent reason to stop, None while there is none."""
    # Every worker has ended by itself: the processes that they started and left are ended.
    if len(workers.exits) >= state.node.local_world_size:
        return _Order("SIGKILL", 0.0, "clean up what the workers left", told=False)
    if workers.on_standby:
        return _abandoned(state, workers) or _standby(state, now)
    # The others train on while this node starts new workers beside those that have parked.
    if standby.keeps(state):
        return None
    return (
        _abandoned(state, workers)
        or _parked(state, workers, now)
        or _own_failure(state, workers, now)
        or _departure(state, now)
        or _generation_ended(state, workers, now)
    )


def _abandoned(state: State, workers: LocalWorkers) -> _Order | None:
    """Whether the workers are suspended and the job went on without them."""
    if not workers.suspension or not state.store.connected or not is_newest(state) or stands(state):
        return None
    return _Order("SIGKILL", 0.0, "the job went on while the workers were paused")


def _standby(state: State, now: float) -> _Order | None:
    """The order to workers on standby that no generation can take in any more."""
    reason = standby.no_use(state, now)
    if reason:
        return _Order("SIGTERM", standby.GRACE_SECONDS, reason)
    # The node became a member while its workers were not ready: all are started as on any node.
    if state.own_member() is not None and is_newest(state) and not move.carries_over(state):
        return _Order("SIGKILL", 0.0, "the generation began before they were ready")
    return None


def _parked(state: State, workers: LocalWorkers, now: float) -> _Order | None:
    """The order to the parked workers of a node that was told to end: a signal would end them while they save."""
    dismissed = workers.phase == "stopping" and workers.stop_first == "none" and bool(workers.parked)
    if state.leaving_since is None or move.is_unheard(state) or not (workers.phase == "parked" or dismissed):
        return None
    end = state.leaving_since + state.limits.shutdown_grace
    return _Order("none", max(0.0, end - now), "this node was told to end")


def _own_failure(state: State, workers: LocalWorkers, now: float) -> _Order | None:
    if workers.failure is None or move.holds_back(state, workers, now):
        return None
    # A worker blocked in a collective runs no SIGTERM handler.
    if workers.failure.kind == "hang":
        return _Order("stacks", 0.0, "hang")
    # The other workers of this node may still save what they have.
    return _Order("SIGTERM", _failure_grace(state, now), "a worker of this node failed")


def _failure_grace(state: State, now: float) -> float:
    """The grace after a failure: a worker may still save while all peers live, and only waits where one is lost."""
    generation, limits = state.generation, state.limits
    statuses = member_statuses(state, generation, now) if generation is not None else ()
    is_lost = any(status.gone and not status.finished for status in statuses)
    return min(limits.lost_grace, limits.failure_grace) if is_lost else limits.failure_grace


def _departure(state: State, now: float) -> _Order | None:
    """The order after SIGTERM: an agreed stop is better, but only while there is time and a store to agree through."""
    if state.leaving_since is None:
        return None
    end = state.leaving_since + state.limits.shutdown_grace
    # The peers can still agree on a stop step with this node: a collective checkpoint needs all of them.
    if state.store.connected and now < end - state.limits.leave_margin:
        return None
    return _Order("SIGTERM", max(0.0, end - now), "this node was told to end")


def _generation_ended(state: State, workers: LocalWorkers, now: float) -> _Order | None:
    generation = state.generation
    limits = state.limits
    # A store that does not answer, or was reborn and is behind, ends no worker: the dead-man timer bounds that time.
    if generation is None or not is_newest(state):
        return None
    # The peers took this node for lost and went on, so its workers cannot take part any more. The same holds for parked
    # workers where all are started anew.
    if generation.identity != workers.identity:
        return _Order("SIGTERM", limits.failure_grace, "the job goes on in a later generation")
    # A peer could not start with this number of workers: whether these workers fail alike shows whether the number is
    # at fault. Or the workers leave the generation and live on.
    if _may_fail_alike(state, generation, workers, now) or move.parks(state, workers, now):
        return None
    # Whether these workers save the state depends on the other nodes that were told to end.
    if workers.can_move and move.is_unheard(state):
        return None
    # A peer failed, hangs or is lost; a hung collective blocks these workers too.
    if generation.phase in {"broken", "final"}:
        hung = generation.cause is not None and generation.cause.kind == "hang"
        broke = _Order("SIGTERM", _failure_grace(state, now), "the generation broke")
        return _Order("stacks", 0.0, "a peer hangs, so these workers do") if hung else broke
    # An agreed planned change.
    return _planned(state, generation, workers) if generation.phase == "draining" else None


def _may_fail_alike(state: State, generation: Generation, workers: LocalWorkers, now: float) -> bool:
    """Whether a peer failed before its first step at a world size in question, and these workers may still do so."""
    failed = generation.phase == "broken" and generation.cause is not None and generation.cause.kind == "worker_failed"
    if not failed or workers.stepped_at is not None or not blame.is_size_in_question(generation):
        return False
    wait = max(state.limits.loss_wait, generation.startup_seconds or 0)
    return now - state.phase_since < min(wait, START_VERDICT_SECONDS)


def _planned(state: State, generation: Generation, workers: LocalWorkers) -> _Order | None:
    """The order of a planned change: SIGTERM without a stop step; with one, no order before the step is reached."""
    # The script reports no steps.
    if generation.stop_step is None:
        return _Order("SIGTERM", state.limits.shutdown_grace, "a planned change")
    # `progress.step` has told a worker to stop: the worker saves and exits by itself, within the grace.
    reached = workers.highest is not None and workers.highest >= generation.stop_step
    if reached or workers.exits:
        return _Order("none", state.limits.shutdown_grace, "a planned change at an agreed step")
    # The step lies ahead: the workers train on until they reach it.
    return None
