"""The agent's decisions: ``step(state, event, now) -> (state, actions)``.

A step takes one fact down, then looks at the whole state and orders the actions that are due. The actions do not depend
on which event came, so a lost or repeated event does no harm. Pure: no I/O, no clock, no randomness. States,
transitions and guarantee are on one page, ``docs/protocol.md``.
"""

from __future__ import annotations

import collections
from dataclasses import replace
from typing import Final

from .. import exit_codes
from . import blame, change, commit, events, group, move, node_faults, standby
from .actions import Action, CompareAndSet, Exit, Publish, Tell
from .apply_event import apply_event, peers_seen
from .group import Step
from .limits import Limits
from .member_status import member_statuses
from .records import Generation
from .report import announce, report
from .state import State, record, with_store, with_workers
from .turns import is_turn


def step(state: State, event: events.Event, now: float) -> tuple[State, tuple[Action, ...]]:
    """The next state, and the actions to carry out in their order."""
    before, state = state, _observe(apply_event(state, event, now), now)
    actions: list[Action] = []
    for rule in RULES:
        if state.exited:
            break
        state, more = rule(state, now)
        actions += more
    emits: tuple[Action, ...] = (*report(before, event, state, tuple(actions)), *announce(before, state))
    return state, (*actions, *emits) if not state.exited else (*emits, *actions)


def next_event(state: State, waiting: collections.deque[events.Event], now: float) -> tuple[State, events.Event]:
    """Take the next event for a step from the queue; returns it with the state after the events before it.

    Of several peer events in a row only the last gets a step, and the others are only taken down: a thousand nodes
    report each change at once.

    Args:
        state: the state before the events.
        waiting: events in the order in which they came, at least one.
        now: seconds of this node's monotonic clock.
    """
    seen: list[events.Peer] = []
    event = waiting.popleft()
    while isinstance(event, events.PeerSeen) and waiting and isinstance(waiting[0], events.PeerSeen):
        seen.append(event.peer)
        event = waiting.popleft()
    return (peers_seen(state, seen) if seen else state), event


def _observe(state: State, now: float) -> State:
    """Note the moments at which the observed conditions began."""
    generation = state.generation
    seen = (generation.identity, generation.phase) if generation else None
    if seen != state.seen and generation is not None and seen is not None:
        is_new = state.seen is None or state.seen[0] != seen[0]
        state = replace(state, committed_since=now) if is_new else state
        if is_new and generation.cause is not None and generation.cause.kind in {"scale_up", "leaving"}:
            state = replace(state, planned_since=now)
        state = replace(state, seen=seen, phase_since=now)
    since = (state.forming_since if state.forming_since is not None else now) if _is_forming(state) else None
    idle = None if _is_occupied(state) else (state.idle_since if state.idle_since is not None else now)
    if (since, idle) == (state.forming_since, state.idle_since):
        return state
    return replace(state, forming_since=since, idle_since=idle)


def _is_forming(state: State) -> bool:
    """Whether there are enough nodes for a first round."""
    if not state.store.connected or state.generation is not None:
        return False
    return len(commit.candidates(state, (), Generation(0))) >= state.limits.min_nodes


def _is_occupied(state: State) -> bool:
    """Whether workers run here, or a generation runs that this node can wait for."""
    if state.takes_part:
        return True
    generation = state.generation
    if generation is None or not state.store.connected or generation.phase not in {"running", "proposed"}:
        return False
    return any(state.store.is_live(member.uuid) for member in generation.members)


def _compare_and_set(state: State, now: float) -> Step:
    """Ask for the most urgent change of ``gen`` that is due, unless a request is under way."""
    if not state.store.connected or state.store.is_setting:
        return state, ()
    wanted = commit.restore(state, now)
    if wanted is None:
        wanted = _advance(state, now)
        if wanted is None:
            return _forget(replace(state, wanting_since=None), now)
        if not is_turn(state, wanted, now):
            return (state if state.wanting_since is not None else replace(state, wanting_since=now)), ()
        wanted = replace(wanted, revision=wanted.revision + 1)
    return _with_pending(state), (CompareAndSet(wanted, state.store.version),)


def _advance(state: State, now: float) -> Generation | None:
    for decide in DECISIONS:
        wanted = decide(state, now)
        if wanted is not None:
            return wanted
    return None


def _with_pending(state: State) -> State:
    workers = state.workers
    if workers is not None and workers.suspension:
        state = with_workers(state, replace(workers, suspension="verifying"))
    return with_store(replace(state, wanting_since=None), replace(state.store, is_setting=True))


def _forget(state: State, now: float) -> Step:
    """Delete the final record of an earlier job under this id: no live node saw the record, and it has expired."""
    generation = state.generation
    if generation is None or generation.phase != "final" or not _is_stale(state, generation, now):
        return state, ()
    return replace(_with_pending(state), latest_seen=None), (CompareAndSet(None, state.store.version),)


def _is_stale(state: State, generation: Generation, now: float) -> bool:
    age = state.store.clock_offset + now - generation.ended_at
    alone = all(status.live is None for status in member_statuses(state, generation, now))
    return age >= state.limits.forget_final and alone and state.own_member() is None


def _publish(state: State, now: float) -> Step:
    mine = record(state)
    if not state.store.connected or mine == state.published:
        return state, ()
    return replace(state, published=mine), (Publish(mine),)


def _exit(state: State, now: float) -> Step:
    """Leave, once no worker runs here and there is a reason to leave."""
    if state.active:
        return state, ()
    ending = _ending(state, now)
    if ending is None:
        return state, ()
    return replace(state, exited=True), (ending,)


def _ending(state: State, now: float) -> Exit | None:
    generation, limits = state.generation, state.limits
    if state.leaving:
        return Exit(
            exit_codes.of_signal(state.signal) if state.signal else exit_codes.STOPPED, "this node was told to end"
        )
    if generation is not None and group.is_newest(state):
        if generation.phase == "final" and not _is_stale(state, generation, now):
            return Exit(generation.exit_code or exit_codes.SUCCESS, "the job is over", generation.cause)
        if generation.evicted == state.node.uuid:
            return Exit(exit_codes.RETRY, "the workers of this node alone keep failing", generation.cause)
    if state.idle_since is not None and now - state.idle_since >= limits.join_timeout:
        if state.store.connected and node_faults.is_refused(state.generation, state.limits, state.node.name):
            return Exit(exit_codes.SCRIPT_FAILED, "the job cannot go on without this node, which keeps failing alone")
        what = "no generation with enough nodes" if state.store.connected else "no store"
        return Exit(exit_codes.RETRY, f"{what} for {limits.join_timeout:g} s")
    return None


def _tell_namesake(state: State, now: float) -> Step:
    """Warn once in the later of two launchers with one name: both train, but logs and events show them as one."""
    mine = state.store.peer(state.node.uuid)
    if state.told_namesake or not state.node.name or mine is None:
        return state, ()
    namesakes = state.store.named(mine.record.name)
    if not any(each.arrived < mine.arrived and each.presence == "live" for each in namesakes):
        return state, ()
    line = (
        f"Another launcher of this job is connected as {state.node.name} too. Both take part; give each a different "
        "name (ELASTIC_INFRA_NODE_NAME) to tell them apart."
    )
    return replace(state, told_namesake=True), (Tell("warning", line),)


def _tell(state: State, now: float) -> Step:
    reason = waiting_for(state, now)
    if reason == state.waiting_for:
        return state, ()
    line = (Tell("info", f"Waiting: {reason}."),) if reason else ()
    return replace(state, waiting_for=reason), line


def waiting_for(state: State, now: float) -> str:
    """Why this ready node is in no running generation; empty where it is in one, or leaves."""
    if not state.ready or state.takes_part or state.leaving or state.exited:
        return ""
    if state.workers is not None and state.workers.on_standby and state.workers.phase == "parking":
        return "its workers import and build their model"
    if not state.store.connected:
        return "the store does not answer"
    if node_faults.is_refused(state.generation, state.limits, state.node.name):
        return "this node has ended too many generations by faults of its own, and is left out"
    if state.generation is None:
        return _waiting_for_the_first(state.limits)
    return _waiting_beside(state, state.generation, now)


def _waiting_for_the_first(limits: Limits) -> str:
    unit = f", in multiples of {limits.node_unit}" if limits.node_unit > 1 else ""
    sizes = f", with {' or '.join(map(str, limits.world_sizes))} workers in all" if limits.world_sizes else ""
    return f"the first round needs {limits.min_nodes} nodes and waits for up to {limits.max_nodes}{unit}{sizes}"


def _waiting_beside(state: State, generation: Generation, now: float) -> str:
    if generation.phase not in {"running", "proposed"}:
        refused = blame.is_size_refused(generation, member_statuses(state, generation, now))
        return (
            "the numbers of workers that the script trains with need other nodes" if refused else "members are stopping"
        )
    if state.own_member() is not None:
        return "peers are still at work"
    if len(generation.members) >= state.limits.max_nodes:
        return f"all {state.limits.max_nodes} places are taken"
    if generation.finishing:
        return "a node has finished, the job is about to end"
    grows = commit.larger(state, generation, member_statuses(state, generation, now))
    waits = "the nodes that wait do not make up a larger number that may train"
    return "the next planned change takes this node in" if grows else waits


DECISIONS: Final = (
    commit.form,
    commit.succeed,
    change.break_up,
    change.reclaim,
    commit.give_back,
    commit.commit,
    change.agree,
    change.propose,
    change.keep_finish,
)
"""The possible changes of the generation record, most urgent first: the first change that is due is asked for."""

RULES: Final = (
    group.enter,
    group.meet,
    group.start,
    group.set_stop_step,  # before `stop`: a worker that waits at the stop step must hear that the step holds
    move.park,
    group.stop,
    group.resume,
    standby.prepare,
    _publish,
    _compare_and_set,
    _exit,
    _tell,
    _tell_namesake,
)
"""What a node does after every event, in this order."""
