"""Why a running generation must end, and the agreement on the step at which it does.

As in ``commit`` every function returns the record that ``gen`` should become, or None.
"""

from __future__ import annotations

from dataclasses import replace

from .commit import candidates
from .member_status import Standing, standings
from .records import Cause, Generation
from .state import Group, State


def break_up(state: State, now: float) -> Generation | None:
    """All members must stop at once: a worker failed here, or a member is lost."""
    generation = state.generation
    if generation is None or state.place() is None or generation.phase not in {"running", "proposed", "draining"}:
        return None
    cause = _own_end(state, generation) or _loss(state, generation, now)
    return replace(generation, phase="broken", cause=cause) if cause else None


def propose(state: State, now: float) -> Generation | None:
    """A planned change: someone is leaving, or newcomers are ready."""
    generation, group = state.generation, state.group_of(state.generation)
    if generation is None or group is None or generation.phase != "running" or group.phase != "running":
        return None
    cause = _departure(state, generation, now) or _arrival(state, generation, group, now)
    if cause is None:
        return None
    if group.highest is None:
        return replace(generation, phase="draining", cause=cause, fence=None)
    return replace(generation, phase="proposed", cause=cause, fence=_fence(state, group))


def agree(state: State, now: float) -> Generation | None:
    """All accepted the stop step: it holds. Or this node is past it: raise it."""
    generation, group = state.generation, state.group_of(state.generation)
    if generation is None or generation.phase != "proposed" or state.place() is None:
        return None
    if group is not None and group.fence == generation.fence and group.accepted != group.fence:
        return replace(generation, fence=_fence(state, group)) if _is_past(group) else None
    roll = standings(state, generation, now)
    if all(standing.finished or _accepts(state, generation, standing) for standing in roll):
        return replace(generation, phase="draining")
    return None


def _own_end(state: State, generation: Generation) -> Cause | None:
    """Why this node's own workers ended before the generation did."""
    group = state.group_of(generation)
    if group is None or (generation.phase == "draining" and generation.fence is None):
        return None  # who is told to stop a moment later sees his collectives fail, which means nothing
    if group.failure is not None:
        return group.failure
    if group.phase == "stopped" and generation.phase != "draining":
        node = state.node
        return Cause("leaving" if state.leaving else "orphaned", node.name or node.address, node.uuid)
    return None


def _loss(state: State, generation: Generation, now: float) -> Cause | None:
    for standing in standings(state, generation, now):
        if standing.finished or standing.member.uuid == state.node.uuid:
            continue
        stopped_alone = standing.done and generation.phase != "draining"
        if stopped_alone or (standing.gone and not standing.done):
            return Cause("leaving" if standing.leaving else "node_lost", standing.member.name, standing.member.uuid)
    return None


def _departure(state: State, generation: Generation, now: float) -> Cause | None:
    for standing in standings(state, generation, now):
        if standing.leaving and not standing.done:
            return Cause("leaving", standing.member.name, standing.member.uuid)
    return None


def _arrival(state: State, generation: Generation, group: Group, now: float) -> Cause | None:
    full = len(generation.members) >= state.rules.max_nodes
    if full or generation.finishing or not planned_change_is_due(state, group, now):
        return None
    if any(standing.finished for standing in standings(state, generation, now)):
        return None
    members = {member.uuid for member in generation.members}
    newcomer = next((said for said in candidates(state, ()) if said.uuid not in members), None)
    if newcomer is None or newcomer.uuid == generation.evicted:
        return None
    return Cause("scale_up", newcomer.name or newcomer.address, newcomer.uuid)


def planned_change_is_due(state: State, group: Group, now: float) -> bool:
    """The generation has trained, and the last planned change is long enough ago or its work is saved since.

    A generation that a newcomer ends before its first step has cost its start and given nothing, and where nodes come
    one by one as fast as workers start, none would ever train. A script that reports no steps has trained as far as
    anyone can tell once its workers are ``planned_gap`` old: a process that lives and uses the processor may still be
    loading. The newcomer's wait costs nobody a step, for the others train on.
    """
    if now - group.started >= state.rules.planned_gap:
        return True
    if group.checkpoint is not None and group.checkpoint != group.first_checkpoint:
        return True
    recent = state.planned_since is not None and now - state.planned_since < state.rules.planned_gap
    return group.highest is not None and not recent


def _fence(state: State, group: Group) -> int:
    """A step no worker has reached: one ahead, and as many more as pass while the nodes agree."""
    ahead = 1 + int(group.per_second * state.rules.fence_lead)
    return (group.highest or 0) + ahead


def _is_past(group: Group) -> bool:
    return group.highest is not None and group.fence is not None and group.highest >= group.fence


def _accepts(state: State, generation: Generation, standing: Standing) -> bool:
    if standing.member.uuid == state.node.uuid:
        group = state.group_of(generation)
        return group is not None and group.accepted == generation.fence
    peer = state.store.peer(standing.member.uuid)
    said = peer.record if peer else None
    return said is not None and said.identity == generation.identity and said.accepted == generation.fence
