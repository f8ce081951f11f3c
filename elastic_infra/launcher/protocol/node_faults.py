"""How many generations a node has ended by its own faults, and when the node is left out for that.

A pod that exits with 200 is recreated under the same name. The cluster sets no bound, since the operator does not count
the pods that it recreates (https://github.com/kubeflow/trainer/issues/2045). The bound is here, where all nodes agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .limits import Limits
from .member_status import MemberStatus
from .records import Generation, NodeFaults
from .restart_budget import ALONE_TRIES
from .state import State


def counted(
    state: State, generation: Generation, statuses: Sequence[MemberStatus], now: float
) -> tuple[NodeFaults, ...]:
    """The faults after this generation, by name; a node without a name has no successors and no count.

    A fault: the member's supervisor said farewell although the node had not been told to end and its work was not done,
    so its launcher has ended by itself or its agent was replaced. The faults of a node that is left out stay.
    """
    clock = int(state.store.clock_offset + now)
    times = {each.name: _that_count(each, state.limits, clock) for each in generation.node_faults}
    for status in statuses:
        name = _name(state, status)
        if name and _has_fault(state, status):
            times[name] = (*times.get(name, ()), clock)
    return _as_records(times)


def counted_eviction(state: State, faults: tuple[NodeFaults, ...], name: str, now: float) -> tuple[NodeFaults, ...]:
    """The faults after a node was left out of the next generation: each failure that led to it was the node's own."""
    times = {each.name: each.times for each in faults}
    clock = int(state.store.clock_offset + now)
    return _as_records({**times, name: (*times.get(name, ()), *[clock] * ALONE_TRIES)}) if name else faults


def is_refused(generation: Generation | None, limits: Limits, name: str) -> bool:
    """Whether no generation after this one, with the faults that it has now, takes launchers of this name."""
    faults = generation.node_faults if generation else ()
    return any(each.name == name and len(each.times) >= limits.node_faults for each in faults)


def _that_count(faults: NodeFaults, limits: Limits, clock: int) -> tuple[int, ...]:
    if len(faults.times) >= limits.node_faults:
        return faults.times
    return tuple(at for at in faults.times if clock - at < limits.node_faults_window)


def _as_records(times: Mapping[str, tuple[int, ...]]) -> tuple[NodeFaults, ...]:
    return tuple(NodeFaults(name, each) for name, each in sorted(times.items()) if each)


def _has_fault(state: State, status: MemberStatus) -> bool:
    peer = state.store.peer(status.member.uuid)
    ended = peer is not None and peer.presence == "ended"
    return ended and not status.leaving and not status.finished


def _name(state: State, status: MemberStatus) -> str:
    peer = state.store.peer(status.member.uuid)
    return peer.record.name if peer else ""
