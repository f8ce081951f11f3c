"""Workers that a node starts before it is a member: they import, build their model and wait, on standby.

A newcomer says ``ready`` only once its workers are, so that the members train on while a newcomer imports, and no
survivor of a move waits for it. Workers on standby count as parked workers of no generation, and enter the first
generation that has a place for their node. A node does this only where a member can be moved, which shows that the
job's script waits for an order before its first step. Workers that fail or take too long are started as any others
once the node is a member, and the node has none on standby before that.

A node that stepped back is a newcomer too: those of its workers that have parked wait beside the new ones.
"""

from __future__ import annotations

from typing import Final

from . import move, node_faults, ranks
from .actions import Action, PrepareWorkers, StartWorkers
from .limits import UNKNOWN_START
from .member_status import member_statuses
from .records import Generation
from .state import NOWHERE, LocalWorkers, State, with_workers

Step = tuple[State, tuple[Action, ...]]

GRACE_SECONDS: Final = 5.0
"""Time from SIGTERM to SIGKILL: these workers have trained nothing that they could save."""


def prepare(state: State, now: float) -> Step:
    """Start the workers of a node that the others can do without."""
    generation = state.generation
    if generation is None or not _may_prepare(state, generation):
        return state, ()
    if not (_has_stepped_back(state, generation) or a_member_can_move(state, generation, now)):
        return state, ()
    kept = move.alive(state.workers) if state.workers is not None and keeps(state) else ()
    if state.active and not kept:
        return state, ()
    workers = LocalWorkers(NOWHERE, "parking", now, parked=kept, stop_by=now + UNKNOWN_START)
    return with_workers(state, workers), (PrepareWorkers(_next_place(state, generation), kept),)


def keeps(state: State) -> bool:
    """Whether the others went on in place without this node, whose parked workers wait until new ones are ready."""
    generation, workers = state.generation, state.workers
    if generation is None or workers is None or workers.phase != "parked" or workers.on_standby or workers.suspension:
        return False
    return _has_stepped_back(state, generation) and _may_prepare(state, generation) and bool(move.alive(workers))


def a_member_can_move(state: State, generation: Generation, now: float) -> bool:
    """Whether workers of the generation have said that they can be moved."""
    said = [status.live for status in member_statuses(state, generation, now)]
    return any(record is not None and record.identity == generation.identity and record.can_move for record in said)


def no_use(state: State, now: float) -> str:
    """Why workers on standby are ended; empty while a generation may need them."""
    generation, idle_since = state.generation, state.idle_since
    if state.leaving:
        return "this node was told to end"
    if generation is not None and generation.phase == "final":
        return "the job is over"
    if idle_since is not None and now - idle_since >= state.limits.join_timeout:
        return "no generation needs them"
    return ""


def _has_stepped_back(state: State, generation: Generation) -> bool:
    return state.node.uuid in generation.stepped_back and generation.phase != "final"


def _may_prepare(state: State, generation: Generation) -> bool:
    free = state.ready and not state.leaving and state.own_member() is None
    if not free or not state.store.connected or generation.finishing:
        return False
    if generation.phase != "running" and not _has_stepped_back(state, generation):
        return False
    # The generation leaves this node out.
    if generation.evicted == state.node.uuid or node_faults.is_refused(generation, state.limits, state.node.name):
        return False
    return not state.standby_failed


def _next_place(state: State, generation: Generation) -> StartWorkers:
    """The place behind all members: rank 0, which many scripts let write files, is another worker's."""
    before, mine = ranks.world_size(generation.members), state.node.local_world_size
    return StartWorkers(
        generation=generation.number + 1,
        attempt=generation.attempt + 1,
        restart_count=generation.budget.charged,
        first_rank=before,
        local_world_size=mine,
        world_size=before + mine,
        group_rank=len(generation.members),
        group_world_size=len(generation.members) + 1,
        master_address=state.node.address,
        master_port=0,
        cause=None,
    )
