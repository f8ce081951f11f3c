"""Why a running generation must end, and the agreement on the step at which it ends.

As in ``commit`` every function returns the record that ``gen`` should become, or None.
"""

from __future__ import annotations

from dataclasses import replace

from . import group, move
from .commit import candidates, larger
from .member_status import MemberStatus, member_statuses
from .records import Cause, Generation
from .state import LocalWorkers, State


def break_up(state: State, now: float) -> Generation | None:
    """All members must stop at once: a worker failed here, or a member is lost."""
    generation = state.generation
    # Not this node's generation, or it is broken or over already.
    if generation is None or state.own_member() is None or generation.phase not in {"running", "proposed", "draining"}:
        return None
    # This node's own observation goes before what the store says of peers, since it holds rank and exit code; unless a
    # peer has crashed, which fails every other worker.
    own = _own_end(state, generation) or move.broken_step(state, generation, now)
    cause = _loss(state, generation, now) if own is None else _crash(state, generation, own, now)
    if cause is None:
        return None
    mode = move.mode_of_change(state, generation, cause, now)
    return replace(generation, phase="broken", cause=cause, next_mode=mode)


def reclaim(state: State, now: float) -> Generation | None:
    """The generation as it is, for a node whose workers were suspended beyond the dead-man timer's deadline.

    The compare-and-set changes the revision only. It fails where peers have gone on without this node; a peer that
    tries to afterwards, on an older picture of the store, fails in turn.
    """
    workers = state.workers_of(state.generation)
    suspended = workers is not None and workers.suspension == "suspended"
    return state.generation if suspended and group.stands(state) else None


def propose(state: State, now: float) -> Generation | None:
    """A planned change: this member is leaving, or newcomers are ready."""
    generation, workers = state.generation, state.workers_of(state.generation)
    # Only a member whose workers train proposes, and only one change at a time.
    if generation is None or workers is None or generation.phase != "running" or workers.phase != "running":
        return None
    cause = _departure(state, generation, now)
    # The state would end with this change: a newcomer that is about to get it does so first.
    if cause is not None and _is_arriving(state, generation, now):
        return None
    cause = cause or _arrival(state, generation, workers, now)
    if cause is None:
        return None
    mode = move.mode_of_change(state, generation, cause, now)
    # The workers can be moved and have made no step: no step is lost where they leave their group at once.
    if workers.highest is None and mode == "move":
        return replace(generation, phase="broken", cause=cause, next_mode=mode)
    # The script reports no steps: there is no step to agree on, and SIGTERM ends the workers.
    if workers.highest is None:
        return replace(generation, phase="draining", cause=cause, stop_step=None)
    # The script reports steps: the members agree on a step that none of them has reached.
    stop_step = _stop_step(workers, state.limits.first_lead(len(generation.members)))
    return replace(generation, phase="proposed", cause=cause, stop_step=stop_step, next_mode=mode)


def keep_finish(state: State, now: float) -> Generation | None:
    """The generation with the members that have finished and answer no more, whose own records will be gone."""
    generation = state.generation
    # Not this node's generation, or its members stop at once and nobody works on.
    if generation is None or state.own_member() is None or generation.phase not in {"running", "proposed", "draining"}:
        return None
    ended = (each.member.uuid for each in member_statuses(state, generation, now) if each.finished and each.gone)
    finished = (*generation.finished, *(uuid for uuid in ended if uuid not in generation.finished))
    return replace(generation, finished=finished) if finished != generation.finished else None


def agree(state: State, now: float) -> Generation | None:
    """The stop step holds once all have accepted it; where this node is past the stop step, it is raised."""
    generation, workers = state.generation, state.workers_of(state.generation)
    if generation is None or generation.phase != "proposed" or state.own_member() is None:
        return None
    # This node has shown its workers the stop step and they have not accepted it: either they are past the step, which
    # must be raised, or their answer is still to come.
    if workers is not None and workers.stop_step == generation.stop_step and workers.accepted != workers.stop_step:
        raised = _stop_step(workers, state.limits.stop_step_lead)
        return replace(generation, stop_step=raised) if _is_past(workers) else None
    statuses = member_statuses(state, generation, now)
    # Every worker is at most at the stop step: none can pass the step any more.
    if all(status.finished or _accepts(state, generation, status) for status in statuses):
        return replace(generation, phase="draining", next_mode=move.mode_of_agreement(state, generation, now))
    # A peer has yet to answer.
    return None


def _own_end(state: State, generation: Generation) -> Cause | None:
    """Why this node's own workers ended before the generation did."""
    workers = state.workers_of(generation)
    # No workers of this generation ran here, or SIGTERM ends the workers one by one: those that get the signal a moment
    # later see their collectives fail, which is no failure of their own.
    if workers is None or (generation.phase == "draining" and generation.stop_step is None):
        return None
    # A worker failed or hangs, or the dead-man timer ended them.
    if workers.failure is not None:
        return workers.failure
    # The workers were stopped without an agreement for this node's own reason: SIGTERM came and time ran out.
    if workers.phase == "stopped" and generation.phase != "draining":
        node = state.node
        return Cause("leaving" if state.leaving else "orphaned", node.name or node.address, node.uuid)
    return None


def _crash(state: State, generation: Generation, own: Cause, now: float) -> Cause:
    """The crash of a peer whose connection has ended too: it explains the failure of the worker here."""
    if own.kind != "worker_failed":
        return own
    disconnected = state.store.disconnected(generation)
    busy = (status.member for status in member_statuses(state, generation, now) if not status.done)
    crashed = next((member for member in busy if member in disconnected), None)
    return Cause("node_lost", crashed.name, crashed.uuid) if crashed else own


def _loss(state: State, generation: Generation, now: float) -> Cause | None:
    for status in member_statuses(state, generation, now):
        # The member's workers exited 0 by themselves: no work is lost with the member.
        if status.finished or status.member.uuid == state.node.uuid:
            continue
        # The member stopped although no stop was agreed, or does not answer and had not stopped before.
        stopped_alone = status.done and generation.phase != "draining"
        if stopped_alone and status.failure and not status.leaving:
            return _failed_start(status)
        if stopped_alone or (status.gone and not status.done):
            return Cause("leaving" if status.leaving else "node_lost", status.member.name, status.member.uuid)
    return None


def _failed_start(status: MemberStatus) -> Cause:
    """The cause of a failed start: the member's record arrived before the member's change of the generation."""
    node = status.member.name
    message = f"A worker on {node} failed before its first step ({status.failure})."
    return Cause("worker_failed", node, status.member.uuid, message=message)


def _departure(state: State, generation: Generation, now: float) -> Cause | None:
    for status in member_statuses(state, generation, now):
        if status.leaving and not status.done:
            return Cause("leaving", status.member.name, status.member.uuid)
    return None


def _is_arriving(state: State, generation: Generation, now: float) -> bool:
    """Whether no member with the state goes on, and one is about to get it."""
    statuses = member_statuses(state, generation, now)
    coming = any(status.can_move and not status.has_state and status.live is not None for status in statuses)
    return coming and not move.goes_on(state, generation, now)


def _arrival(state: State, generation: Generation, workers: LocalWorkers, now: float) -> Cause | None:
    full = len(generation.members) >= state.limits.max_nodes
    # No place is free, or the job is about to end.
    if full or generation.finishing:
        return None
    # No node is ready, which a large job sees at little cost.
    if not candidates(state, (), generation):
        return None
    statuses = member_statuses(state, generation, now)
    # A member has finished, so the others are about to.
    if any(status.finished for status in statuses):
        return None
    wanted = larger(state, generation, statuses)
    # The only ready newcomer keeps failing alone, or the ready newcomers do not make up a larger size that is allowed.
    members = {member.uuid for member in generation.members}
    newcomer = next((member for member in wanted if member.uuid not in members), None)
    if newcomer is None:
        return None
    cause = Cause("scale_up", newcomer.name, newcomer.uuid)
    # The workers have trained long enough to be stopped, or need not be stopped.
    is_due = move.is_due(state, workers, cause, now) or planned_change_is_due(state, workers, now)
    return cause if is_due else None


def planned_change_is_due(state: State, workers: LocalWorkers, now: float) -> bool:
    """Whether the generation has trained, and the last planned change is long enough ago or the work since is saved.

    A generation that a newcomer ends before its first step has cost its start and trained no step, and where nodes come
    one by one as fast as workers start, no generation would ever train. The newcomer's wait costs no node a step, since
    the others train on.
    """
    # The workers load, compile or hang: newcomers wait for longer than any start has taken so far.
    if workers.stepped_at is None:
        longest = state.generation.startup_seconds if state.generation else None
        return now - workers.started >= state.limits.patience(longest)
    # These workers have trained for long enough to repay their start, whatever they report.
    if now - workers.stepped_at >= state.limits.planned_gap:
        return True
    # A checkpoint was saved since the workers started: a stop now repeats few steps.
    if workers.checkpoint is not None and workers.checkpoint != workers.first_checkpoint:
        return True
    # The workers make steps, and no newcomer has ended a generation a moment ago.
    recent = state.planned_since is not None and now - state.planned_since < state.limits.planned_gap
    return workers.highest is not None and not recent


def _stop_step(workers: LocalWorkers, lead: float) -> int:
    """A step that no worker has reached: one step ahead, and as many more as pass in so many seconds."""
    ahead = 1 + int(workers.per_second * lead)
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
