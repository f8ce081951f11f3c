"""Why a running generation must end, and the agreement on the step at which it does.

As in ``commit`` every function returns the record that ``gen`` should become, or None.
"""

from __future__ import annotations

from dataclasses import replace

from .commit import candidates
from .member_status import MemberStatus, member_statuses
from .records import Cause, Generation
from .state import LocalWorkers, State


def break_up(state: State, now: float) -> Generation | None:
    """All members must stop at once: a worker failed here, or a member is lost."""
    generation = state.generation
    if generation is None or state.own_member() is None or generation.phase not in {"running", "proposed", "draining"}:
        return None
    cause = _own_end(state, generation) or _loss(state, generation, now)
    return replace(generation, phase="broken", cause=cause) if cause else None


def propose(state: State, now: float) -> Generation | None:
    """A planned change: someone is leaving, or newcomers are ready."""
    generation, workers = state.generation, state.workers_of(state.generation)
    if generation is None or workers is None or generation.phase != "running" or workers.phase != "running":
        return None
    cause = _departure(state, generation, now) or _arrival(state, generation, workers, now)
    if cause is None:
        return None
    if workers.highest is None:
        return replace(generation, phase="draining", cause=cause, stop_step=None)
    return replace(generation, phase="proposed", cause=cause, stop_step=_stop_step(state, workers))


def agree(state: State, now: float) -> Generation | None:
    """All accepted the stop step: it holds. Or this node is past it: raise it."""
    generation, workers = state.generation, state.workers_of(state.generation)
    if generation is None or generation.phase != "proposed" or state.own_member() is None:
        return None
    if workers is not None and workers.stop_step == generation.stop_step and workers.accepted != workers.stop_step:
        return replace(generation, stop_step=_stop_step(state, workers)) if _is_past(workers) else None
    statuses = member_statuses(state, generation, now)
    if all(status.finished or _accepts(state, generation, status) for status in statuses):
        return replace(generation, phase="draining")
    return None


def _own_end(state: State, generation: Generation) -> Cause | None:
    """Why this node's own workers ended before the generation did."""
    workers = state.workers_of(generation)
    if workers is None or (generation.phase == "draining" and generation.stop_step is None):
        return None  # who is told to stop a moment later sees his collectives fail, which means nothing
    if workers.failure is not None:
        return workers.failure
    if workers.phase == "stopped" and generation.phase != "draining":
        node = state.node
        return Cause("leaving" if state.leaving else "orphaned", node.name or node.address, node.uuid)
    return None


def _loss(state: State, generation: Generation, now: float) -> Cause | None:
    for status in member_statuses(state, generation, now):
        if status.finished or status.member.uuid == state.node.uuid:
            continue
        stopped_alone = status.done and generation.phase != "draining"
        if stopped_alone or (status.gone and not status.done):
            return Cause("leaving" if status.leaving else "node_lost", status.member.name, status.member.uuid)
    return None


def _departure(state: State, generation: Generation, now: float) -> Cause | None:
    for status in member_statuses(state, generation, now):
        if status.leaving and not status.done:
            return Cause("leaving", status.member.name, status.member.uuid)
    return None


def _arrival(state: State, generation: Generation, workers: LocalWorkers, now: float) -> Cause | None:
    full = len(generation.members) >= state.limits.max_nodes
    if full or generation.finishing or not planned_change_is_due(state, workers, now):
        return None
    if any(status.finished for status in member_statuses(state, generation, now)):
        return None
    members = {member.uuid for member in generation.members}
    newcomer = next((said for said in candidates(state, ()) if said.uuid not in members), None)
    if newcomer is None or newcomer.uuid == generation.evicted:
        return None
    return Cause("scale_up", newcomer.name or newcomer.address, newcomer.uuid)


def planned_change_is_due(state: State, workers: LocalWorkers, now: float) -> bool:
    """The generation has trained, and the last planned change is long enough ago or its work is saved since.

    A generation that a newcomer ends before its first step has cost its start and given nothing, and where nodes come
    one by one as fast as workers start, none would ever train. A script that reports no steps has trained as far as
    anyone can tell once its workers are ``planned_gap`` old: a process that lives and uses the processor may still be
    loading. The newcomer's wait costs nobody a step, for the others train on.
    """
    if now - workers.started >= state.limits.planned_gap:
        return True
    if workers.checkpoint is not None and workers.checkpoint != workers.first_checkpoint:
        return True
    recent = state.planned_since is not None and now - state.planned_since < state.limits.planned_gap
    return workers.highest is not None and not recent


def _stop_step(state: State, workers: LocalWorkers) -> int:
    """A step no worker has reached: one ahead, and as many more as pass while the nodes agree."""
    ahead = 1 + int(workers.per_second * state.limits.stop_step_lead)
    return (workers.highest or 0) + ahead


def _is_past(workers: LocalWorkers) -> bool:
    return workers.highest is not None and workers.stop_step is not None and workers.highest >= workers.stop_step


def _accepts(state: State, generation: Generation, status: MemberStatus) -> bool:
    if status.member.uuid == state.node.uuid:
        workers = state.workers_of(generation)
        return workers is not None and workers.accepted == generation.stop_step
    peer = state.store.peer(status.member.uuid)
    said = peer.record if peer else None
    return said is not None and said.identity == generation.identity and said.accepted == generation.stop_step
