"""The local worker group: when it starts, why and how it is stopped, at which step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from . import messages, ranks
from .records import Generation, Master, Member, order_of
from .state import Group, State, with_group

First = Literal["SIGTERM", "stacks", "SIGKILL", "none"]
Step = tuple[State, tuple[messages.Action, ...]]

_STRENGTH: Final = {"none": 0, "SIGTERM": 1, "stacks": 2, "SIGKILL": 2}


def enter(state: State, now: float) -> Step:
    """Take the place this node has in a newly committed generation; never before the old workers are gone."""
    generation = state.generation
    if generation is None or state.place() is None or state.active or state.group_of(generation) is not None:
        return state, ()
    if not is_newest(state) or generation.phase == "final" or not state.ready:
        return state, ()
    startable = generation.phase in {"running", "proposed"} and not state.leaving
    return with_group(state, Group(generation.identity, "preparing" if startable else "stopped", now)), ()


def start(state: State, now: float) -> Step:
    """Start the workers once the generation's meeting place is known."""
    generation, group, place = state.generation, state.group, state.place()
    if group is None or group.phase != "preparing" or not state.store.connected or not is_newest(state):
        return state, ()
    if generation is None or place is None or not _may_start(state, generation, group):
        return with_group(state, replace(group, phase="stopped")), ()
    if generation.members[0].uuid != state.node.uuid:
        master = state.store.master
        met = master is not None and master.identity == generation.identity
        return _started(state, generation, group, place, master, now) if met and master else (state, ())
    if group.port:
        return _started(state, generation, group, place, _master(state, group), now)
    if group.port_asked:
        return state, ()
    return with_group(state, replace(group, port_asked=True)), (messages.ChoosePort(generation.number),)


def meet(state: State, now: float) -> Step:
    """The leader publishes the meeting place, once in every life of the store."""
    generation, group = state.generation, state.group_of(state.generation)
    if generation is None or group is None or not group.port or not state.store.connected:
        return state, ()
    if group.met_in == state.store.epoch or generation.members[0].uuid != state.node.uuid:
        return state, ()
    group = replace(group, met_in=state.store.epoch)
    return with_group(state, group), (messages.PublishMaster(_master(state, group)),)


def is_newest(state: State) -> bool:
    """Whether the store knows all that this node knows: a reborn one does not at first."""
    return state.known is None or order_of(state.generation) >= state.known.order


def _master(state: State, group: Group) -> Master:
    number, epoch = group.identity
    return Master(number, epoch, state.node.address, group.port)


def _may_start(state: State, generation: Generation, group: Group) -> bool:
    same = generation.identity == group.identity
    return same and generation.phase in {"running", "proposed"} and not state.leaving


def _started(state: State, generation: Generation, group: Group, place: Member, master: Master, now: float) -> Step:
    start = messages.StartWorkers(
        generation=generation.number,
        attempt=generation.attempt,
        restart_count=generation.budget.charged,
        first_rank=ranks.first_rank(generation.members, place.uuid),
        local_world_size=place.local_world_size,
        world_size=ranks.world_size(generation.members),
        group_rank=generation.members.index(place),
        group_world_size=len(generation.members),
        master_address=master.address,
        master_port=master.port,
        cause=generation.cause,
    )
    return with_group(state, replace(group, phase="running", started=now)), (start,)


def fence(state: State, now: float) -> Step:
    """Keep the stop step in the progress memory what the generation record says."""
    generation, group = state.generation, state.group_of(state.generation)
    if generation is None or group is None or group.phase != "running" or generation.fence is None:
        return state, ()
    agreed = generation.phase == "draining"
    if generation.phase not in {"proposed", "draining"} or (group.fence, group.fence_agreed) == (
        generation.fence,
        agreed,
    ):
        return state, ()
    group = replace(group, fence=generation.fence, fence_agreed=agreed)
    return with_group(state, group), (messages.SetStopStep(generation.number, generation.fence, agreed),)


def stop(state: State, now: float) -> Step:
    """Order the local workers to stop where there is a reason, or harder and earlier than before."""
    group = state.group
    order = _order(state, group, now) if group is not None and group.active else None
    if group is None or order is None:
        return state, ()
    by = now + order.grace
    stronger = _STRENGTH[order.first] > _STRENGTH[group.stop_first]
    if group.phase == "stopping" and not stronger and by >= group.stop_by - 0.05:
        return state, ()
    by = min(by, group.stop_by) if group.phase == "stopping" else by
    told = group.told or order.told
    group = replace(group, phase="stopping", stop_by=by, stop_first=order.first, told=told)
    action = messages.StopWorkers(group.identity[0], max(0.0, by - now), order.first, order.reason)
    return with_group(state, group), (action,)


@dataclass(frozen=True)
class _Order:
    first: First
    grace: float
    reason: str
    told: bool = True


def _order(state: State, group: Group, now: float) -> _Order | None:
    """The most urgent reason to stop, None while there is none."""
    if len(group.exits) >= state.node.local_world_size:
        return _Order("SIGKILL", 0.0, "clean up what the workers left", told=False)
    return _own_failure(state, group) or _departure(state, now) or _generation_ended(state, group)


def _own_failure(state: State, group: Group) -> _Order | None:
    if group.failure is None:
        return None
    if group.failure.kind == "hang":
        return _Order("stacks", 0.0, "hang")
    return _Order("SIGTERM", state.rules.failure_grace, "a worker of this node failed")


def _departure(state: State, now: float) -> _Order | None:
    """SIGTERM came: an agreed stop is better, but only while there is time and a store to agree through."""
    if state.leaving_since is None:
        return None
    end = state.leaving_since + state.rules.shutdown_grace
    if state.store.connected and now < end - state.rules.leave_margin:
        return None
    return _Order("SIGTERM", max(0.0, end - now), "this node was told to end")


def _generation_ended(state: State, group: Group) -> _Order | None:
    generation = state.generation
    rules = state.rules
    if generation is None or not is_newest(state):
        return None
    if generation.identity != group.identity:
        return _Order("SIGTERM", rules.failure_grace, "the job goes on in a later generation")
    if generation.phase in {"broken", "final"}:
        hung = generation.cause is not None and generation.cause.kind == "hang"
        broke = _Order("SIGTERM", rules.failure_grace, "the generation broke")
        return _Order("stacks", 0.0, "a peer hangs, so this group does") if hung else broke
    return _planned(state, generation, group) if generation.phase == "draining" else None


def _planned(state: State, generation: Generation, group: Group) -> _Order | None:
    """Without a stop step SIGTERM, with one nothing before it is reached."""
    if generation.fence is None:
        return _Order("SIGTERM", state.rules.shutdown_grace, "a planned change")
    reached = group.highest is not None and group.highest >= generation.fence
    if reached or group.exits:
        return _Order("none", state.rules.shutdown_grace, "a planned change at an agreed step")
    return None
