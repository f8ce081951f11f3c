"""Workers that keep their processes: when they park in place of being stopped, and enter the next generation.

A change of members is *attempted* as a move where a member's workers have said that they can be moved: they park, and
the next generation consists of those workers and newly started ones, which get the state from them. Workers that cannot
be moved are stopped and started again in the same change. The record that ends a generation says what is attempted
(``next_mode``); the next generation's own ``mode`` is ``restart`` where no worker parked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from . import actions
from .actions import Action, Saves
from .member_status import MemberStatus, member_statuses
from .records import Cause, Generation, Mode
from .state import LocalWorkers, State, with_workers

Step = tuple[State, tuple[Action, ...]]

MOST_FAILED: Final = 2
"""After so many moves in a row without a step the next change starts all workers anew."""
PARK_SECONDS: Final = 5.0
PARK_STEPS: Final = 3
"""Time for a worker to finish its computation before it parks, in steps (their 99th percentile), and 5 s at least."""


def mode_of_change(state: State, generation: Generation, cause: Cause, now: float) -> Mode:
    """How the end of this generation is attempted."""
    # A hung worker does not answer, and its peers wait in its collective: all write their stacks and are ended.
    if cause.kind == "hang" or failed_moves(state, generation, now) >= MOST_FAILED:
        return "restart"
    # Workers of a member that was told to end park too where no other member has the state, and save it.
    can_move = any(status.can_move for status in member_statuses(state, generation, now))
    return "move" if can_move else "restart"


def mode_of_agreement(state: State, generation: Generation, now: float) -> Mode:
    """How an agreed change is attempted: by a restart where no member with the state goes on, so that all save it."""
    return generation.next_mode if goes_on(state, generation, now) else "restart"


def mode_of_next(generation: Generation, survivors: tuple[MemberStatus, ...]) -> Mode:
    """How the members of the next generation enter it: in place where a worker with the state has parked."""
    parked = any(status.live is not None and status.live.state == "parked" for status in survivors)
    return "move" if generation.next_mode == "move" and parked else "restart"


def failed_moves(state: State, generation: Generation, now: float) -> int:
    """Number of moves in a row without a step, this generation's included once it ends."""
    if generation.mode == "restart":
        return 0
    records = [status.live for status in member_statuses(state, generation, now)]
    stepped = any(
        said is not None and said.identity == generation.identity and said.startup_seconds is not None
        for said in records
    )
    return 0 if stepped else generation.failed_moves + 1


def is_due(state: State, workers: LocalWorkers, cause: Cause, now: float) -> bool:
    """Whether a newcomer may join at once: the workers make steps, and a move costs them only one or two."""
    generation = state.generation
    has_stepped = workers.stepped_at is not None and workers.highest is not None
    return has_stepped and generation is not None and mode_of_change(state, generation, cause, now) == "move"


def broken_step(state: State, generation: Generation, now: float) -> Cause | None:
    """Why a step broke here while no worker ended: a peer's crash where one is seen in time, else a failure."""
    workers = state.workers_of(generation)
    if workers is None or workers.broke is None:
        return None
    # SIGTERM ends the workers one by one, and the first ends break the others' steps.
    if generation.phase == "draining" and generation.stop_step is None:
        return None
    waited = now - workers.broke_at >= state.limits.loss_wait
    if not (waited or state.store.disconnected(generation)):
        return None
    # A planned change is under way: a peer left its step early, which is no failure.
    return generation.cause if generation.phase == "draining" else workers.broke


def holds_back(state: State, workers: LocalWorkers, now: float) -> bool:
    """Whether a worker of this node failed and the others go on, since the change of members will have them park."""
    generation = state.generation
    if generation is None or workers.failure is None or state.workers_of(generation) is None or state.leaving:
        return False
    if generation.phase not in {"running", "proposed", "draining"}:
        return parks(state, workers, now)
    return workers.can_move and mode_of_change(state, generation, workers.failure, now) == "move"


def parks(state: State, workers: LocalWorkers, now: float) -> bool:
    """Whether these workers leave their generation by parking."""
    generation = state.generation
    if generation is None or state.workers_of(generation) is None or generation.next_mode != "move":
        return False
    if generation.phase == "draining" and (state.leaving or generation.stop_step is None):
        return False
    # This node was told to end, and another one goes on with the state.
    if state.leaving and goes_on(state, generation, now):
        return False
    able = workers.can_move or workers.phase in {"parking", "parked"}
    return able and generation.phase in {"broken", "draining"}


def park(state: State, now: float) -> Step:
    """Have the workers park where the change is a move, and end those that do not in time."""
    workers = state.workers
    if workers is None or not workers.active or not (workers.on_standby or parks(state, workers, now)):
        return state, ()
    state, workers, ordered = (state, workers, ()) if workers.on_standby else _ordered(state, workers, now)
    if workers.phase != "parking":
        return state, ordered
    gone = {rank for rank, _, _ in workers.exits}
    missing = tuple(rank for rank in range(state.node.local_world_size) if rank not in gone | set(workers.parked))
    # All living workers have parked; where none lives, leftover processes are cleaned up as after any end.
    if not missing and len(gone) < state.node.local_world_size:
        return with_workers(state, replace(workers, phase="parked")), ordered
    ended = missing if now >= workers.stop_by else workers.stuck  # who cannot park is not waited for
    late = tuple(rank for rank in missing if rank in ended and rank not in workers.killed)
    if not late:
        return state, ordered
    killed = replace(workers, killed=(*workers.killed, *late))
    return with_workers(state, killed), (*ordered, actions.KillWorkers(workers.identity[0], late))


def goes_on(state: State, generation: Generation, now: float) -> bool:
    """Whether a member with the state lives and was not told to end."""
    return any(status.has_state and status.live is not None for status in member_statuses(state, generation, now))


def is_unheard(state: State) -> bool:
    """Whether the store has yet to tell this node of its own leaving, which all nodes see in one order.

    Of two nodes that leave at once the later one in that order knows of the other, so that not each of them relies on
    the other's state.
    """
    if not (state.leaving and state.store.connected):
        return False
    mine = state.store.peer(state.node.uuid)
    return mine is None or not mine.record.leaving


def saves(state: State, now: float) -> Saves:
    """What this node's workers save when they are told to end by themselves."""
    generation = state.generation
    # The workers' generation is over: their successors have the state.
    if generation is None or state.workers_of(generation) is None:
        return "nothing"
    # All workers of the generation end at the agreed step, and start again from what they save.
    if generation.phase == "draining" and generation.next_mode == "restart":
        return "part"
    return "whole" if state.leaving and not goes_on(state, generation, now) else "nothing"


def carries_over(state: State) -> bool:
    """Whether this node's parked workers go on into the generation in the store."""
    generation, workers = state.generation, state.workers
    if generation is None or workers is None or workers.phase != "parked" or generation.identity == workers.identity:
        return False
    if state.leaving or workers.suspension or _is_empty(state, workers):
        return False
    # Workers of a generation before have its process group; those on standby have none.
    if generation.mode != "move" and not workers.on_standby:
        return False
    startable = generation.phase in {"running", "proposed"}
    return startable or (generation.phase in {"broken", "draining"} and generation.next_mode == "move")


def carried_over(workers: LocalWorkers, generation: Generation, now: float) -> LocalWorkers:
    """The same processes as the next generation's workers; they stay parked where that generation has ended already."""
    behind = workers.on_standby or workers.behind
    kept = LocalWorkers(
        generation.identity,
        "preparing",
        now,
        kept=alive(workers),
        exits=workers.exits,
        can_move=True,
        behind=behind,
        earlier=workers.earlier if workers.highest is None else workers.highest,
        per_second=workers.per_second,
        step_seconds=workers.step_seconds,
    )
    return kept if generation.phase in {"running", "proposed"} else parked_again(kept)


def alive(workers: LocalWorkers) -> tuple[int, ...]:
    """Local ranks of the workers that parked and live."""
    gone = {rank for rank, _, _ in workers.exits}
    return tuple(rank for rank in (*workers.parked, *workers.kept) if rank not in gone)


def parked_again(workers: LocalWorkers) -> LocalWorkers:
    """The workers that were to enter a generation which ended before they did: they are still parked."""
    return replace(workers, phase="parked", parked=alive(workers), kept=())


def _ordered(state: State, workers: LocalWorkers, now: float) -> tuple[State, LocalWorkers, tuple[Action, ...]]:
    """Order the workers to park: by a message that ends their step, or by the stop step that they have reached."""
    generation = state.generation
    assert generation is not None  # noqa: S101  `parks` has looked
    broken = generation.phase == "broken"
    if broken and not workers.told_to_park and workers.phase in {"running", "parking"}:
        wait = max(PARK_SECONDS, PARK_STEPS * workers.step_seconds)
        workers = replace(workers, phase="parking", stop_by=now + wait, told_to_park=True)
        return with_workers(state, workers), workers, (actions.ParkWorkers(workers.identity[0]),)
    at_step = generation.stop_step is not None and (workers.highest or 0) >= generation.stop_step
    if not broken and workers.phase == "running" and (at_step or workers.parked):
        workers = replace(workers, phase="parking", stop_by=now + state.limits.shutdown_grace)
        return with_workers(state, workers), workers, ()
    return state, workers, ()


def _is_empty(state: State, workers: LocalWorkers) -> bool:
    return len(workers.exits) >= state.node.local_world_size
