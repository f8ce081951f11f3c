"""What a step was, for the event lines: read off from the states before and after it and from its actions. Pure."""

from __future__ import annotations

from . import messages, ranks
from .records import Cause, Generation
from .state import State

Fields = tuple[tuple[str, str | int | float | bool | None], ...]


def report(
    before: State, event: messages.Event, after: State, actions: tuple[messages.Action, ...]
) -> tuple[messages.Emit, ...]:
    """The events of one step, in order."""
    emits = [*_of_event(event), *_of_generation(before, after)]
    for action in actions:
        emits += _of_action(after, action)
    return tuple(emits)


def _of_event(event: messages.Event) -> list[messages.Emit]:
    if isinstance(event, messages.Ready):
        return [messages.Emit("rendezvous_started")]
    if isinstance(event, messages.WorkerExited):
        rank: Fields = (("local_rank", event.local_rank), ("exit_code", event.exit_code))
        return [messages.Emit("worker_exited", (*rank, ("message", event.message)))]
    if isinstance(event, messages.HangSeen):
        return [messages.Emit("hang_detected", (("local_rank", event.local_rank), ("message", event.message)))]
    return []


def _of_generation(before: State, after: State) -> list[messages.Emit]:
    if before.seen == after.seen or after.generation is None:
        return []
    generation, emits = after.generation, []
    if generation.phase == "broken" and generation.cause is not None and generation.cause.kind == "node_lost":
        emits.append(messages.Emit("node_lost", (("lost", generation.cause.node), ("uuid", generation.cause.uuid))))
    if before.seen is None or before.seen[0] == generation.identity or generation.phase != "running":
        return emits
    return [*emits, *_of_commit(after, generation)]


def _of_commit(after: State, generation: Generation) -> list[messages.Emit]:
    world: Fields = (("nodes", len(generation.members)), ("world_size", ranks.world_size(generation.members)))
    cause = _why(generation.cause)
    if generation.charged:
        return [messages.Emit("restart", (*cause, ("restart_count", generation.budget.charged), *world))]
    return [messages.Emit("membership_change", (*cause, *world))]


def _why(cause: Cause | None) -> Fields:
    return () if cause is None else (("cause", cause.kind), ("about", cause.node), ("message", cause.message))


def _of_action(after: State, action: messages.Action) -> list[messages.Emit]:
    if isinstance(action, messages.StartWorkers):
        local: Fields = (("first_rank", action.first_rank), ("local_world_size", action.local_world_size))
        place: Fields = (*local, ("world_size", action.world_size))
        group: Fields = (("group_rank", action.group_rank), ("group_world_size", action.group_world_size))
        return [
            messages.Emit("rendezvous_completed", group),
            messages.Emit("workers_started", (*place, ("restart_count", action.restart_count))),
        ]
    if isinstance(action, messages.StopWorkers):
        return [messages.Emit("stopping", (("first", action.first), ("reason", action.reason)))]
    if isinstance(action, messages.Exit):
        end = {0: "succeeded"}.get(action.code, "preempted" if after.leaving else "failed")
        return [messages.Emit(end, (("exit_code", action.code), ("reason", action.reason), *_why(action.cause)))]
    return []
