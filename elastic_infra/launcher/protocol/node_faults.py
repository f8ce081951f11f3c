"""How many generations a node has ended by its own faults, and when the node is left out for that.

A pod that exits with 200 is recreated under the same name. The cluster sets no bound, since the operator does not count
the pods that it recreates (https://github.com/kubeflow/trainer/issues/2045). The bound is here, where all nodes agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from .limits import Limits
from .member_status import MemberStatus
from .records import Generation, NodeFaults
from .restart_budget import ALONE_TRIES
from .state import State


def counted(
    state: State, generation: Generation, statuses: Sequence[MemberStatus], now: float
) -> tuple[NodeFaults, ...]:
    """The counts after this generation, by name; a node without a name has no successors and no count.

    A fault: the member's supervisor said farewell although the node had not been told to end and its work was not done,
    so its launcher has ended by itself or its agent was replaced. A node that trained for long beforehand begins a new
    count.
    """
    counts = {faults.name: faults.count for faults in generation.node_faults}
    if now - state.committed_since >= state.limits.node_faults_window:
        counts = {name: count for name, count in counts.items() if name not in _names(state, statuses)}
    for status in statuses:
        name = _name(state, status)
        count = counts.get(name, 0) + _faults(state, status)
        if name and count:
            counts[name] = count
    return tuple(NodeFaults(name, count) for name, count in sorted(counts.items()))


def counted_eviction(faults: tuple[NodeFaults, ...], name: str) -> tuple[NodeFaults, ...]:
    """The counts after a node was left out of the next generation: each failure that led to it was the node's own."""
    counts = {each.name: each.count for each in faults}
    counts[name] = counts.get(name, 0) + ALONE_TRIES
    return tuple(NodeFaults(*each) for each in sorted(counts.items())) if name else faults


def is_refused(generation: Generation | None, limits: Limits, name: str) -> bool:
    """Whether no generation after this one, with the counts that it has now, takes launchers of this name."""
    counts = generation.node_faults if generation else ()
    return any(each.name == name and each.count >= limits.node_faults for each in counts)


def _faults(state: State, status: MemberStatus) -> int:
    peer = state.store.peer(status.member.uuid)
    ended = peer is not None and peer.presence == "ended"
    return int(ended and not status.leaving and not status.finished)


def _names(state: State, statuses: Sequence[MemberStatus]) -> frozenset[str]:
    return frozenset(_name(state, status) for status in statuses)


def _name(state: State, status: MemberStatus) -> str:
    peer = state.store.peer(status.member.uuid)
    return peer.record.name if peer else ""
