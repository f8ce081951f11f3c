"""Event and log lines for a step of the machine, from the states before and after the step and its actions. Pure."""

from __future__ import annotations

from . import events, move, ranks
from .actions import Action, CompareAndSet, Emit, Exit, Level, PrepareWorkers, StartWorkers, StopWorkers, Tell
from .records import Cause, Generation
from .state import State, record

Fields = tuple[tuple[str, str | int | float | bool | None], ...]


def report(before: State, event: events.Event, after: State, actions: tuple[Action, ...]) -> tuple[Emit, ...]:
    """The events of one step, in order."""
    emits = [*_of_event(event), *_of_generation(before, after), *_of_standby(before, after)]
    for action in actions:
        emits += _of_action(after, action)
    return tuple(emits)


def announce(before: State, after: State) -> tuple[Tell, ...]:
    """One log line that says what ended the last generation and what happens next."""
    generation = after.generation
    if before.seen is None or before.seen == after.seen or generation is None or generation.cause is None:
        return ()
    if before.seen[0] == generation.identity or generation.phase != "running":
        return ()
    level: Level = "info" if generation.cause.kind in {"scale_up", "leaving"} else "warning"
    workers, nodes = ranks.world_size(generation.members), len(generation.members)
    what = "Workers go on in place" if generation.mode == "move" else "Workers start again"
    lines = [f"{_ended_by(after, generation)} {what}: {workers} on {nodes} nodes."]
    if generation.mode == "restart" and generation.failed_moves >= move.MOST_FAILED:
        lines.append(f"They are not kept, because {generation.failed_moves} changes in place in a row made no step.")
    lines += [f"Node {name} steps back while its workers start." for name in _stepped_back(after, generation)]
    return (Tell(level, " ".join(lines)),)


def _stepped_back(after: State, generation: Generation) -> list[str]:
    """The readable names of the nodes that are not waited for."""
    peers = [after.store.peer(uuid) for uuid in generation.stepped_back]
    return [peer.record.name or peer.record.address for peer in peers if peer is not None]


def _ended_by(after: State, generation: Generation) -> str:
    cause = generation.cause
    if cause is None:
        return ""
    node = cause.node or "a node"
    said = {
        "scale_up": f"Node {node} joined.",
        "leaving": f"Node {node} was told to end.",
        "node_lost": f"Node {node} is lost.",
        "orphaned": f"Node {node} lost the store for too long.",
    }.get(cause.kind) or f"{cause.message or 'A worker failed.'}"
    if not generation.charged:
        return f"{said} (Not charged to max_restarts.)"
    return f"{said} (Restart {generation.budget.restarts} of {after.limits.max_restarts} since the last progress.)"


def transitions(before: State, after: State, actions: tuple[Action, ...]) -> tuple[str, ...]:
    """Log lines: the transitions of this node and of the generation, and the change that this node asks for."""
    return (*_node_transition(before, after), *_generation_transition(before, after), *_wishes(after, actions))


def _node_transition(before: State, after: State) -> list[str]:
    old, new = record(before), record(after)
    if (old.state, old.identity) == (new.state, new.identity):
        return []
    of = f", generation {new.generation}" if new.generation else ""
    return [f"{_own_name(after)}: {old.state} -> {new.state}{of}."]


def _generation_transition(before: State, after: State) -> list[str]:
    generation = after.generation
    if generation is None or before.seen == after.seen:
        return []
    was = before.seen[1] if before.seen and before.seen[0] == generation.identity else "new"
    return [f"Generation {generation.number}: {was} -> {_described(generation)}."]


def _wishes(after: State, actions: tuple[Action, ...]) -> list[str]:
    wanted = [action.generation for action in actions if isinstance(action, CompareAndSet)]
    there = after.generation
    was = f"{there.number} {there.phase}" if there else "none"
    return [
        f"{_own_name(after)} asks for generation {was} -> {f'{new.number} {_described(new)}' if new else 'none'}."
        for new in wanted
    ]


def _described(generation: Generation) -> str:
    why = f", {generation.cause.kind} {generation.cause.node}" if generation.cause else ""
    step = f", stop step {generation.stop_step}" if generation.stop_step is not None else ""
    return f"{generation.phase} of {len(generation.members)} nodes{why}{step}"


def _own_name(state: State) -> str:
    return state.node.name or state.node.uuid[:8]


def _of_event(event: events.Event) -> list[Emit]:
    if isinstance(event, events.Ready):
        return [Emit("rendezvous_started")]
    if isinstance(event, events.WorkerExited):
        rank: Fields = (("local_rank", event.local_rank), ("exit_code", event.exit_code))
        return [Emit("worker_exited", (*rank, ("message", event.message)))]
    if isinstance(event, events.HangSeen):
        return [Emit("hang_detected", (("local_rank", event.local_rank), ("message", event.message)))]
    return []


def _of_standby(before: State, after: State) -> list[Emit]:
    """The moment at which workers on standby became ready."""
    old, new = before.workers, after.workers
    if old is None or new is None or not new.on_standby or (old.phase, new.phase) != ("parking", "parked"):
        return []
    return [Emit("workers_prepared", (("local_world_size", len(new.parked)),))]


def _of_generation(before: State, after: State) -> list[Emit]:
    if before.seen == after.seen or after.generation is None:
        return []
    generation, emits = after.generation, []
    if generation.phase == "broken" and generation.cause is not None and generation.cause.kind == "node_lost":
        emits.append(Emit("node_lost", (("lost", generation.cause.node), ("uuid", generation.cause.uuid))))
    if before.seen is None or before.seen[0] == generation.identity or generation.phase != "running":
        return emits
    return [*emits, *_of_commit(after, generation)]


def _of_commit(after: State, generation: Generation) -> list[Emit]:
    size: Fields = (("nodes", len(generation.members)), ("world_size", ranks.world_size(generation.members)))
    without = ", ".join(_stepped_back(after, generation))
    world: Fields = (*size, ("mode", generation.mode), *((("stepped_back", without),) if without else ()))
    cause = _why(generation.cause)
    if generation.charged:
        return [Emit("restart", (*cause, ("restart_count", generation.budget.charged), *world))]
    return [Emit("membership_change", (*cause, *world))]


def _why(cause: Cause | None) -> Fields:
    return () if cause is None else (("cause", cause.kind), ("about", cause.node), ("message", cause.message))


def _of_action(after: State, action: Action) -> list[Emit]:
    if isinstance(action, StartWorkers):
        local: Fields = (("first_rank", action.first_rank), ("local_world_size", action.local_world_size))
        place: Fields = (*local, ("world_size", action.world_size))
        group: Fields = (("group_rank", action.group_rank), ("group_world_size", action.group_world_size))
        mode = after.generation.mode if after.generation else "restart"
        how: Fields = (("mode", mode), ("kept", len(action.kept)), ("restart_count", action.restart_count))
        return [Emit("rendezvous_completed", group), Emit("workers_started", (*place, *how))]
    if isinstance(action, PrepareWorkers):
        local = (("local_world_size", action.place.local_world_size),)
        return [Emit("workers_preparing", (*local, *((("kept", len(action.kept)),) if action.kept else ())))]
    if isinstance(action, StopWorkers):
        return [Emit("stopping", (("first", action.first), ("reason", action.reason)))]
    if isinstance(action, Exit):
        end = {0: "succeeded"}.get(action.code, "preempted" if after.leaving else "failed")
        return [Emit(end, (("exit_code", action.code), ("reason", action.reason), *_why(action.cause)))]
    return []
