"""The next generation: when it may be committed, who is in it, what the end of the last one costs.

Every function returns the record that ``gen`` should become, or None where it is not time. Compare-and-set decides
between nodes that want different ones.
"""

from __future__ import annotations

from dataclasses import replace

from . import ranks, restart_budget
from .member_status import Standing, standings
from .records import Cause, Generation, NodeRecord, order_of
from .state import State, record


def restore(state: State, now: float) -> Generation | None:
    """Bring what this node knows into a store that knows less: it was reborn."""
    known, there = state.known, state.generation
    if known is None:
        return None
    restored = known.epoch != state.store.epoch
    if known.order > order_of(there):
        return replace(known, trusted=restored and state.sure)
    if there is not None and restored and not there.trusted and state.sure and there.identity == known.identity:
        return replace(there, trusted=True)
    return None


def form(state: State, now: float) -> Generation | None:
    """The first generation of a store that knows none."""
    if state.generation is not None or state.known is not None:
        return None
    if not first_round_is_complete(state, now):
        return None
    return _generation(state, Generation(0), (), candidates(state, ()))


def first_round_is_complete(state: State, now: float) -> bool:
    """Enough nodes are ready, and nobody is worth waiting for any longer."""
    rules, ready = state.rules, len(candidates(state, ()))
    if ready < rules.min_nodes or state.forming_since is None:
        return False
    if ready >= rules.max_nodes or (rules.startup_wait > 0 and ready >= rules.initial_nodes):
        return True
    if rules.startup_wait > 0:
        return now - state.store.since >= rules.startup_wait
    return now - state.forming_since >= rules.last_call


def candidates(state: State, survivors: tuple[NodeRecord, ...]) -> tuple[NodeRecord, ...]:
    """Ready nodes that are not among the survivors, this one included."""
    taken = {survivor.uuid for survivor in survivors} | {state.node.uuid}
    mine = record(state)
    others = (said for said in state.store.live() if said.uuid not in taken)
    own = () if any(survivor.uuid == mine.uuid for survivor in survivors) else (mine,)
    return tuple(said for said in (*own, *others) if said.state == "ready" and not said.leaving)


def succeed(state: State, now: float) -> Generation | None:
    """The end, once every member has finished."""
    generation = state.generation
    if generation is None or generation.phase == "final" or not generation.members:
        return None
    if not all(standing.finished for standing in standings(state, generation, now)):
        return None
    cause = Cause("succeeded", state.node.name or state.node.address, state.node.uuid)
    return _final(state, generation, 0, cause, now)


def commit(state: State, now: float) -> Generation | None:
    """The generation after this one, or the end where the budget is spent."""
    generation = state.generation
    if generation is None or generation.phase == "final":
        return None
    roll = standings(state, generation, now)
    if any(standing.busy for standing in roll) or not _is_over(generation, roll):
        return None
    if not (any(standing.done for standing in roll) or all(standing.dead for standing in roll)):
        return None
    if _is_chargeable(state, generation, roll):
        return _charged(state, generation, roll, now)
    budget = restart_budget.refund(generation.budget) if _is_refundable(state, generation, roll) else generation.budget
    return _next(state, replace(generation, budget=budget, charged=False), roll)


def _is_over(generation: Generation, roll: tuple[Standing, ...]) -> bool:
    """Its members agreed to stop, or none of them is left to agree to anything."""
    if generation.phase in {"draining", "broken"}:
        return True
    return all(standing.live is None for standing in roll)


def _is_chargeable(state: State, generation: Generation, roll: tuple[Standing, ...]) -> bool:
    """A failure of the script's own making: the failure of a group that lost a member is a membership change.

    Where the store was reborn under this generation nobody knows any more who broke it first.
    """
    failed = generation.cause is not None and generation.cause.kind in {"worker_failed", "hang"}
    witnessed = generation.epoch == state.store.epoch
    return generation.phase == "broken" and failed and witnessed and not any(standing.lost for standing in roll)


def _is_refundable(state: State, generation: Generation, roll: tuple[Standing, ...]) -> bool:
    """The node whose failure was charged a moment ago is lost now: its failure was the first sign of that."""
    at_once = state.phase_since - state.committed_since <= state.rules.roll_call
    lost = {standing.member.uuid for standing in roll if standing.lost}
    return generation.charged and at_once and generation.budget.culprit in lost


def _charged(state: State, generation: Generation, roll: tuple[Standing, ...], now: float) -> Generation | None:
    failure = generation.cause
    if failure is None:
        return None
    verdict = restart_budget.charge(generation.budget, failure, state.rules.max_restarts)
    others = tuple(standing for standing in roll if standing.member.uuid != failure.uuid)
    alone = restart_budget.keeps_failing_alone(verdict.budget)
    if alone and verdict.exit_code != restart_budget.NO_PROGRESS and len(others) >= state.rules.min_nodes:
        spared = replace(
            verdict.budget, restarts=generation.budget.restarts, charged=generation.budget.charged, culprit=""
        )
        return _next(state, replace(generation, budget=spared, evicted=failure.uuid, charged=False), others)
    if verdict.exit_code is None:
        return _next(state, replace(generation, budget=verdict.budget, charged=True), roll)
    if len(roll) > 1 and now - state.phase_since < state.rules.roll_call:
        return None  # the failure may yet turn out to be the first sign of a lost node
    cause = replace(failure, message=failure.message or verdict.reason)
    return _final(state, replace(generation, budget=verdict.budget), verdict.exit_code, cause, now)


def _next(state: State, generation: Generation, roll: tuple[Standing, ...]) -> Generation | None:
    survivors = tuple(standing.live for standing in roll if standing.live is not None)
    finishing = generation.finishing or any(standing.finished for standing in roll)
    newcomers = candidates(state, survivors)
    newcomers = tuple(said for said in newcomers if said.uuid != generation.evicted)
    if finishing and len(survivors) >= state.rules.min_nodes:
        newcomers = ()
    return _generation(state, replace(generation, finishing=finishing), survivors, newcomers)


def _generation(
    state: State, last: Generation, survivors: tuple[NodeRecord, ...], newcomers: tuple[NodeRecord, ...]
) -> Generation | None:
    members = ranks.assign(survivors, newcomers, state.rules.max_nodes)
    if len(members) < state.rules.min_nodes or state.node.uuid not in {member.uuid for member in members}:
        return None
    return Generation(
        number=last.number + 1,
        members=members,
        cause=last.cause,
        epoch=state.store.epoch,
        revision=last.revision,
        budget=last.budget,
        attempt=last.attempt + 1 if last.number else 0,
        finishing=last.finishing,
        charged=last.charged,
        evicted=last.evicted,
    )


def _final(state: State, generation: Generation, exit_code: int, cause: Cause, now: float) -> Generation:
    ended_at = int(state.unix_offset + now)
    return replace(generation, phase="final", exit_code=exit_code, cause=cause, fence=None, ended_at=ended_at)
