"""One node from its events: its phase, and since when. Pure.

A phase begins at the event that reports it, with two exceptions that are known only later: training begins at the
first step, and a hang begins at the last step before the hang was noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from elastic_infra.timeline.records import Record

Phase = Literal["rendezvous", "start", "run", "train", "hang", "stop", "gone"]
"""``rendezvous``: the launcher runs without workers: it starts, looks for its peers, or waits for them at the end.
``start``: workers run and have made no step yet. ``run``: workers run, of a script that reports no steps. ``train``:
workers make steps. ``hang``: workers make no steps any more, until the hang is noticed. ``stop``: workers are told to
end, or have begun to.
``gone``: no launcher runs."""


@dataclass(frozen=True)
class Node:
    """The facts about a node at one moment."""

    name: str
    phase: Phase = "gone"
    since: float = 0.0
    generation: int = 0
    first_rank: int | None = None
    local_world_size: int | None = None
    running: frozenset[int] = frozenset()
    """Local ranks of the running workers."""
    step: int | None = None
    """The newest step of this generation on this node."""
    stepped_at: float | None = None
    """When that step was seen."""
    heard_at: float = 0.0
    has_joined: bool = False
    """Whether the node has reported more than its launcher's start, which a node without a name reports under its
    machine's name."""


@dataclass(frozen=True)
class Change:
    """The event that a node entered a phase."""

    node: str
    at: float
    phase: Phase
    generation: int


def follow(node: Node, record: Record) -> tuple[Node, tuple[Change, ...]]:
    """The node after one of its own events, and the phases that it entered."""
    phases = _RULES.get(record.event, _none)(node, record)
    node = _learn(node, record)
    changes = []
    for at, phase in phases:
        if phase != node.phase or record.event == "workers_started":
            node = replace(node, phase=phase, since=at)
            changes.append(Change(node.name, at, phase, node.generation))
    return replace(node, heard_at=record.at), tuple(changes)


def lose(node: Node, at: float) -> tuple[Node, tuple[Change, ...]]:
    """The node after a peer said that it is lost."""
    if node.phase == "gone" or node.heard_at >= at:
        return node, ()
    return replace(node, phase="gone", since=at), (Change(node.name, at, "gone", node.generation),)


def step_seen_at(record: Record) -> float:
    """When the steps of a ``progress`` event were seen; the event may come some seconds later."""
    return record.at - (record.number("age_seconds") or 0.0)


def first_step_at(record: Record) -> float:
    """When a node made the first step of its generation; when it was seen, where a ``progress`` event does not say.

    The launcher looks at the steps up to twice a second, so that workers may have made many when it sees the first.
    """
    age = record.number("first_age_seconds")
    return step_seen_at(record) if age is None else min(record.at - age, step_seen_at(record))


def _learn(node: Node, record: Record) -> Node:
    """The node with an event's facts besides the phase."""
    node = replace(node, has_joined=node.has_joined or record.event != "launcher_started")
    if record.event == "workers_started":
        first, local = record.whole("first_rank"), record.whole("local_world_size")
        node = replace(node, generation=record.generation, first_rank=first, local_world_size=local)
        kept = node.running if record.whole("kept") else frozenset()
        return replace(node, running=kept, step=None, stepped_at=None)
    if record.event == "worker_started":
        return replace(node, running=node.running | {record.whole("local_rank") or 0})
    if record.event == "worker_exited":
        return replace(node, running=node.running - {record.whole("local_rank") or 0})
    step = record.whole("highest") if record.event == "progress" else None
    if step is None or record.generation != node.generation or step <= (-1 if node.step is None else node.step):
        return node
    return replace(node, step=step, stepped_at=step_seen_at(record))


Phases = tuple[tuple[float, Phase], ...]


def _none(_node: Node, _record: Record) -> Phases:
    return ()


def _launched(node: Node, record: Record) -> Phases:
    """The node after a launcher's start; a launcher before that reported no end was alive until its last event."""
    if node.phase in {"gone", "rendezvous"}:
        return ((record.at, "rendezvous"),)
    return ((node.heard_at, "gone"), (record.at, "rendezvous"))


def _met(node: Node, record: Record) -> Phases:
    return ((record.at, "rendezvous"),) if node.phase == "gone" else ()


def _started(_node: Node, record: Record) -> Phases:
    return ((record.at, "start"),)


def _stepped(node: Node, record: Record) -> Phases:
    if node.phase != "start" or record.generation != node.generation:
        return ()
    return ((max(node.since, first_step_at(record)), "train"),)


def _hung(node: Node, record: Record) -> Phases:
    if node.phase not in {"start", "train"}:
        return ()
    return ((min(record.at, node.stepped_at or node.since), "hang"),)


def _told(node: Node, record: Record) -> Phases:
    if node.phase not in {"start", "train", "hang"}:
        return ()
    before = _hung(node, record) if record.text("first") == "stacks" else ()
    return (*before, (record.at, "stop"))


def _exited(node: Node, record: Record) -> Phases:
    if node.phase in {"gone", "rendezvous"}:
        return ()
    left = node.running - {record.whole("local_rank") or 0}
    return ((record.at, "stop" if left else "rendezvous"),)


def _gone(_node: Node, record: Record) -> Phases:
    return ((record.at, "gone"),)


_RULES: Final[Mapping[str, Callable[[Node, Record], Phases]]] = {
    "node_started": _launched,
    "launcher_started": _launched,
    "rendezvous_started": _met,
    "workers_started": _started,
    "progress": _stepped,
    "hang_detected": _hung,
    "stopping": _told,
    "worker_exited": _exited,
    "watchdog_fired": _gone,
    "agent_replaced": _launched,
    "preempted": _gone,
    "succeeded": _gone,
    "failed": _gone,
    "node_exited": _gone,
}
