"""The next generation: when it may be committed, its members, and what the end of the last one costs.

Every function returns the record that ``gen`` should become, or None where it is not time. Compare-and-set decides
between nodes that want different ones.
"""

from __future__ import annotations

from dataclasses import replace

from .. import exit_codes
from . import blame, move, node_faults, ranks, restart_budget, step_back
from .member_status import MemberStatus, member_statuses
from .records import Cause, Generation, Member, NodeRecord, order_of
from .state import State, record


def restore(state: State, now: float) -> Generation | None:
    """Bring this node's record into a reborn store, which knows less."""
    known, there = state.latest_seen, state.generation
    # This node has seen no record that it could bring.
    if known is None:
        return None
    restored = known.incarnation != state.store.incarnation
    # The store is empty or holds an older record: it was reborn, and this node's record is the newer one.
    if known.order > order_of(there):
        return replace(known, confirmed=restored and state.has_latest)
    # A member that may have missed a later record has brought this one in; this node cannot have missed one, so it
    # confirms the record.
    if there is not None and restored and not there.confirmed and state.has_latest and there.identity == known.identity:
        return replace(there, confirmed=True)
    # The store knows as much as this node, or more.
    return None


def form(state: State, now: float) -> Generation | None:
    """The first generation, in a store without a record."""
    # There is a record, or there was one, which `restore` brings back first.
    if state.generation is not None or state.latest_seen is not None:
        return None
    # Too few nodes are ready, or more of them are worth waiting for.
    if not first_round_is_complete(state, now):
        return None
    first = Generation(0)
    return _generation(state, first, (), _places(state, first, (), candidates(state, (), first)))


def first_round_is_complete(state: State, now: float) -> bool:
    """Whether enough nodes are ready, and no further node is worth waiting for."""
    limits, ready = state.limits, len(candidates(state, (), Generation(0)))
    # The job cannot run with so few nodes.
    if ready < limits.min_nodes or state.forming_since is None:
        return False
    # Every place is taken, or all nodes that the first round hopes for are here.
    if ready >= limits.max_nodes or (limits.startup_wait > 0 and ready >= limits.initial_nodes):
        return True
    # The component knows its number of pods: the first round waits for late image pulls.
    if limits.startup_wait > 0:
        return now - state.store.since >= limits.startup_wait
    # The command line does not say how many nodes will come: torchrun's last call applies.
    return now - state.forming_since >= limits.last_call


def candidates(state: State, survivors: tuple[NodeRecord, ...], last: Generation) -> tuple[NodeRecord, ...]:
    """Ready nodes besides the survivors, this one included, without those that the last generation's faults exclude."""
    taken = {survivor.uuid for survivor in survivors} | {state.node.uuid}
    mine = record(state)
    is_ready = mine.state == "ready" and not mine.leaving
    own = (mine,) if is_ready and all(survivor.uuid != mine.uuid for survivor in survivors) else ()
    ready = (*own, *(said for said in state.store.ready() if said.uuid not in taken))
    if not last.node_faults:  # as in nearly every job, and this is asked at each step, of thousands
        return ready
    return tuple(said for said in ready if not node_faults.is_refused(last, state.limits, said.name))


def succeed(state: State, now: float) -> Generation | None:
    """The end, once every member has finished."""
    generation = state.generation
    if generation is None or generation.phase == "final" or not generation.members:
        return None
    # A member trains, stopped without having finished, or is lost: the job is not over.
    if not all(status.finished for status in member_statuses(state, generation, now)):
        return None
    cause = Cause("succeeded", state.node.name or state.node.address, state.node.uuid)
    return _final(state, generation, 0, cause, now)


def commit(state: State, now: float) -> Generation | None:
    """The generation after this one, or the end where the budget is spent."""
    generation = state.generation
    if generation is None or generation.phase == "final":
        return None
    statuses = member_statuses(state, generation, now)
    # A member lives and has not stopped its workers, or there is no reason to end this generation.
    if any(status.busy for status in statuses) or not _is_over(generation, statuses):
        return None
    # No member says that it has stopped, and a member may only be out of reach: its workers may still train.
    if not (any(status.done for status in statuses) or all(status.dead for status in statuses)):
        return None
    # The script failed: the failure is charged, and the job ends where the budget is spent.
    if _is_chargeable(state, generation, statuses):
        return _charged(state, generation, statuses, now)
    # A membership change is not charged, and a charge for its first sign is taken back.
    budget = (
        restart_budget.refund(generation.budget) if _is_refundable(state, generation, statuses) else generation.budget
    )
    budget = restart_budget.forgive(budget, _newest_step(state, generation))
    return _next(state, replace(generation, budget=budget, charged=False), statuses, now)


def _newest_step(state: State, generation: Generation) -> int | None:
    """The newest step of a generation that is over, as far as this node knows, which may be no member."""
    workers = state.workers_of(generation)
    known = workers.newest_step if workers else None
    return generation.stop_step if generation.phase == "draining" and generation.stop_step is not None else known


def give_back(state: State, now: float) -> Generation | None:
    """The same generation without the charge for a worker whose node stepped back and was lost a moment later.

    The failure was the first sign of the loss, as in ``_is_refundable``, but the loss of a node that is no member ends
    no generation. So the charge is taken back at once, while the other nodes can tell when that node was lost.
    """
    generation = state.generation
    if generation is None or not generation.charged or generation.phase != "running" or state.own_member() is None:
        return None
    culprit = generation.budget.culprit
    if culprit not in generation.stepped_back or not _is_lost_at_once(state, generation, culprit, now):
        return None
    return replace(generation, budget=restart_budget.refund(generation.budget), charged=False)


def _is_lost_at_once(state: State, generation: Generation, uuid: str, now: float) -> bool:
    """Whether a node that is no member was lost, or told to end, within a moment of the generation's beginning."""
    peer, limits = state.store.peer(uuid), state.limits
    # The store has dropped the node's record, or was reborn: nobody knows when the node was lost.
    if peer is None or generation.incarnation != state.store.incarnation:
        return False
    if peer.record.leaving:
        return now - state.committed_since <= limits.loss_wait
    away = peer.presence in {"silent", "ended"}
    away = away or (peer.presence == "disconnected" and now - peer.since >= limits.reconnect_wait)
    return away and peer.since - state.committed_since <= limits.loss_wait


def _is_over(generation: Generation, statuses: tuple[MemberStatus, ...]) -> bool:
    """Whether the members agreed to stop, or no member is left that could agree."""
    # The members have been told to stop, by plan or by force.
    if generation.phase in {"draining", "broken"}:
        return True
    # Every member died at once: newcomers begin where the members ended.
    return all(status.live is None for status in statuses)


def _is_chargeable(state: State, generation: Generation, statuses: tuple[MemberStatus, ...]) -> bool:
    """Whether the script caused the failure: the failure of a group that lost a member is a membership change.

    Where the store was reborn under this generation, no node knows any more which member broke it first.
    """
    failed = generation.cause is not None and generation.cause.kind in {"worker_failed", "hang"}
    witnessed = generation.incarnation == state.store.incarnation
    return generation.phase == "broken" and failed and witnessed and not any(status.lost for status in statuses)


def _is_refundable(state: State, generation: Generation, statuses: tuple[MemberStatus, ...]) -> bool:
    """Whether the node whose failure was charged a moment ago is lost now: the failure was the first sign."""
    at_once = state.phase_since - state.committed_since <= state.limits.loss_wait
    lost = {status.member.uuid for status in statuses if status.lost}
    return generation.charged and at_once and generation.budget.culprit in lost


def _charged(state: State, generation: Generation, statuses: tuple[MemberStatus, ...], now: float) -> Generation | None:
    failure = blame.culprit(generation, statuses)
    if failure is None:
        return None
    generation = replace(generation, cause=failure)
    # The script cannot use this number of workers: the number is at fault, and no node.
    if blame.is_size_refused(generation, statuses):
        return _fall_back(state, generation, failure, statuses, now)
    verdict = restart_budget.charge(generation.budget, failure, state.limits.max_restarts)
    others = tuple(status for status in statuses if status.member.uuid != failure.uuid)
    alone = restart_budget.keeps_failing_alone(verdict.budget)
    # One node fails repeatedly while its peers are healthy: the node is left out, and the job's budget is not charged.
    if alone and verdict.exit_code != exit_codes.NO_PROGRESS and len(others) >= state.limits.min_nodes:
        spared = replace(
            verdict.budget, restarts=generation.budget.restarts, charged=generation.budget.charged, culprit=""
        )
        faults = node_faults.counted_eviction(state, generation.node_faults, failure.node, now)
        spared_generation = replace(generation, budget=spared, charged=False, evicted=failure.uuid, node_faults=faults)
        return _next(state, spared_generation, others, now)
    # The budget allows another try.
    if verdict.exit_code is None:
        return _next(state, replace(generation, budget=verdict.budget, charged=True), statuses, now)
    # The budget is spent, but the job must not end for a failure that may be the first sign of a lost node.
    if len(statuses) > 1 and now - state.phase_since < state.limits.loss_wait:
        return None
    # The script failed beyond its budget: the job is over.
    cause = replace(failure, message=failure.message or verdict.reason)
    return _final(state, replace(generation, budget=verdict.budget), verdict.exit_code, cause, now)


def _fall_back(
    state: State, generation: Generation, failure: Cause, statuses: tuple[MemberStatus, ...], now: float
) -> Generation | None:
    size = ranks.world_size(generation.members)
    budget = restart_budget.charge_size(generation.budget, state.limits.max_restarts)
    refusing = replace(generation, budget=budget, charged=True, evicted="", refused=(*generation.refused, size))
    after = _next(state, refusing, statuses, now, prefer=generation.trained)
    if after is None:
        return None
    left = ranks.world_size(after.members)
    message = f"The script does not start with {size} workers; the job goes on with {left}. {failure.message}"
    return replace(after, cause=replace(failure, message=message.rstrip()))


def _next(
    state: State,
    generation: Generation,
    statuses: tuple[MemberStatus, ...],
    now: float,
    prefer: tuple[int, ...] = (),
) -> Generation | None:
    survivors = tuple(status.live for status in statuses if status.live is not None)
    ended = replace(
        generation,
        finishing=generation.finishing or any(status.finished for status in statuses),
        startup_seconds=_longest_start(generation, survivors),
        node_faults=node_faults.counted(state, generation, statuses, now),
        trained=_trained(generation, statuses),
        mode=move.mode_of_next(generation, statuses),
        failed_moves=move.failed_moves(state, generation, now),
    )
    remaining = step_back.remaining(state, ended, statuses)
    members = next_members(state, ended, remaining, prefer) if remaining else ()
    # Too few can go on at once: all wait for those whose workers have to be started.
    if len(members) < max(1, state.limits.min_nodes):
        members = next_members(state, ended, statuses, prefer)
    return _generation(state, ended, survivors, members)


def _trained(generation: Generation, statuses: tuple[MemberStatus, ...]) -> tuple[int, ...]:
    size = ranks.world_size(generation.members)
    stepped = any(status.stepped for status in statuses)
    return tuple(sorted({*generation.trained, size})) if stepped else generation.trained


def next_members(
    state: State, generation: Generation, statuses: tuple[MemberStatus, ...], prefer: tuple[int, ...] = ()
) -> tuple[Member, ...]:
    """The members of the generation after this one, in a number of workers of ``prefer`` where there is one."""
    survivors = tuple(status.live for status in statuses if status.live is not None)
    newcomers = candidates(state, survivors, generation)
    # The node that keeps failing alone is not let in again.
    newcomers = tuple(said for said in newcomers if said.uuid != generation.evicted)
    # A node has finished, so the others are about to finish: a newcomer would only start the script to see it end.
    if generation.finishing and len(survivors) >= state.limits.min_nodes:
        newcomers = ()
    preferred = _places(state, generation, survivors, newcomers, prefer) if prefer else ()
    enough = len(preferred) >= max(1, state.limits.min_nodes)
    return preferred if enough else _places(state, generation, survivors, newcomers)


def larger(state: State, generation: Generation, statuses: tuple[MemberStatus, ...]) -> tuple[Member, ...]:
    """The next members where they have more workers than this generation; else none."""
    wanted = next_members(state, generation, statuses)
    return wanted if ranks.world_size(wanted) > ranks.world_size(generation.members) else ()


def _places(
    state: State,
    last: Generation,
    survivors: tuple[NodeRecord, ...],
    newcomers: tuple[NodeRecord, ...],
    sizes: tuple[int, ...] = (),
) -> tuple[Member, ...]:
    def allows(nodes: int, workers: int) -> bool:
        return state.limits.allows(nodes, workers, last.refused) and workers in (sizes or (workers,))

    return ranks.assign(survivors, newcomers, state.limits.max_nodes, allows, in_place=last.mode == "move")


def _generation(
    state: State, last: Generation, survivors: tuple[NodeRecord, ...], members: tuple[Member, ...]
) -> Generation | None:
    # Too few nodes are ready, or no place is left for this node: only a member commits its generation.
    if len(members) < state.limits.min_nodes or state.node.uuid not in {member.uuid for member in members}:
        return None
    return Generation(
        number=last.number + 1,
        members=members,
        cause=last.cause,
        incarnation=state.store.incarnation,
        revision=last.revision,
        budget=last.budget,
        attempt=last.attempt + 1 if last.number else 0,
        finishing=last.finishing,
        charged=last.charged,
        evicted=last.evicted,
        node_faults=last.node_faults,
        trained=last.trained,
        refused=last.refused,
        startup_seconds=last.startup_seconds,
        mode=last.mode,
        stepped_back=_stepped_back(last, survivors, members),
        failed_moves=last.failed_moves,
    )


def _stepped_back(last: Generation, survivors: tuple[NodeRecord, ...], members: tuple[Member, ...]) -> tuple[str, ...]:
    taken = {member.uuid for member in members}
    in_place = last.mode == "move" and not last.finishing
    return tuple(survivor.uuid for survivor in survivors if in_place and survivor.uuid not in taken)


def _longest_start(last: Generation, survivors: tuple[NodeRecord, ...]) -> int | None:
    starts = [survivor.startup_seconds for survivor in survivors if survivor.identity == last.identity]
    return max((seconds for seconds in (last.startup_seconds, *starts) if seconds is not None), default=None)


def _final(state: State, generation: Generation, exit_code: int, cause: Cause, now: float) -> Generation:
    ended = replace(generation, phase="final", exit_code=exit_code, cause=cause, stop_step=None)
    return replace(ended, ended_at=int(state.store.clock_offset + now), ended_by=state.node.uuid)
