"""The generations in order: the size of each, its cause and its steps. Pure.

Every member reports its generation: the first report makes the entry, the others complete it. Numbers start again when
all launchers and their store were replaced: another life of the job begins, which loses only steps that no checkpoint
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from elastic_infra.timeline.nodes import first_step_at, step_seen_at
from elastic_infra.timeline.records import Record

Kind = Literal["failure", "hang", "membership", "preemption"]
"""``failure``: a worker failed, charged to ``max_restarts``, or all launchers began anew. ``hang``: workers made no
steps. ``membership``: a node came, or one was lost. ``preemption``: a node was told to end (preempted, scaled down)."""

SOURCES: Final = ("process", "memory", "peer", "disk", "nothing")
"""Where a state comes from, the nearest first, as the launchers' events say."""

SKEW_SECONDS: Final = 5.0
"""A member with a wrong clock may report its start by this much after the next generation has begun."""


@dataclass(frozen=True)
class Cause:
    """Why the generation before ended, as the launchers' protocol names it."""

    kind: str
    """``scale_up``, ``leaving``, ``node_lost``, ``worker_failed``, ``hang``, ``orphaned``, ...; added here:
    ``relaunch``."""
    node: str
    message: str = ""


@dataclass(frozen=True)
class Steps:
    """The steps that a generation made, as its reports say."""

    first: int
    first_at: float
    last: int
    last_at: float
    ahead_at: float | None
    """When the generation passed the highest step of all earlier ones; None while it repeats steps."""
    per_second: float = 0.0


@dataclass(frozen=True)
class Generation:
    """A generation that was committed, and what is known of its training."""

    number: int
    life: int
    begin: float
    nodes: tuple[str, ...] = ()
    """Members that reported their start, in the order of the reports."""
    size: int = 0
    """Number of nodes in the generation."""
    world_size: int = 0
    kind: Kind | None = None
    """The kind of the change before it; None for the first generation."""
    moved: bool = False
    """Whether workers kept their processes in that change."""
    cause: Cause | None = None
    steps: Steps | None = None
    checkpoint: int | None = None
    """The newest step that is on disk, as last reported in this generation; None where unreported."""
    memory_step: int | None = None
    """The same of a node's memory; of several nodes the newest."""
    samples: int | None = None
    """Samples on which the job has trained, over all epochs, as last reported; a restore takes some back."""
    restored_from: str = ""
    """Where its workers' state came from, as in ``SOURCES``; of several nodes the farthest; empty where unknown."""


Generations = tuple[Generation, ...]


def follow(generations: Generations, record: Record) -> Generations:
    """The generations after an event."""
    rule = _RULES.get(record.event)
    if rule is None or record.generation < 1:
        return generations
    index, generations = _find(generations, record)
    return (*generations[:index], rule(generations, index, record), *generations[index + 1 :])


def _find(generations: Generations, record: Record) -> tuple[int, Generations]:
    """The entry for a record, which is made where there is none."""
    life = generations[-1].life if generations else 0
    for index in reversed(range(len(generations))):
        entry = generations[index]
        if entry.life == life and entry.number == record.generation and not _is_another(generations, index, record):
            return index, generations
    is_anew = any(entry.life == life and entry.number >= record.generation for entry in generations)
    entry = Generation(record.generation, life + is_anew, record.at)
    if is_anew:
        entry = replace(entry, kind="failure", cause=Cause("relaunch", record.node))
    return len(generations), (*generations, entry)


def _is_another(generations: Generations, index: int, record: Record) -> bool:
    """Whether a start belongs to a later life: no node starts a generation twice, or long after the next one."""
    if record.event != "workers_started":
        return False
    followed = generations[index + 1].begin if index + 1 < len(generations) else record.at
    return record.node in generations[index].nodes or record.at - followed > SKEW_SECONDS


def _started(generations: Generations, index: int, record: Record) -> Generation:
    entry = generations[index]
    world = record.whole("world_size") or entry.world_size
    nodes = (*entry.nodes, record.node)
    size = max(entry.size, len(nodes), world // (record.whole("local_world_size") or world or 1))
    moved = entry.moved or record.text("mode") == "move"
    return replace(entry, nodes=nodes, size=size, world_size=world, moved=moved)


def _committed(generations: Generations, index: int, record: Record) -> Generation:
    entry = generations[index]
    cause = Cause(record.text("cause"), record.text("about"), record.text("message"))
    size, world = record.whole("nodes") or entry.size, record.whole("world_size") or entry.world_size
    moved = entry.moved or record.text("mode") == "move"
    return replace(entry, size=size, world_size=world, cause=cause, kind=_kind(record, cause), moved=moved)


def _kind(record: Record, cause: Cause) -> Kind:
    if cause.kind == "hang":
        return "hang"
    if record.event == "restart":
        return "failure"
    return "preemption" if cause.kind == "leaving" else "membership"


def _stepped(generations: Generations, index: int, record: Record) -> Generation:
    entry, highest = generations[index], record.whole("highest")
    if highest is None:
        return entry
    entry = replace(
        entry,
        checkpoint=_newest(entry.checkpoint, record.whole("checkpoint")),
        memory_step=_newest(entry.memory_step, record.whole("memory_step")),
        samples=_newest(entry.samples, record.whole("samples")),
    )
    before = highest_step(generations[:index])
    return replace(entry, steps=_longer(entry.steps, record, highest, before))


def _newest(known: int | None, told: int | None) -> int | None:
    """The higher of two numbers, where they are known: nodes report the same progress at different times."""
    return max((each for each in (known, told) if each is not None), default=None)


def _longer(steps: Steps | None, record: Record, highest: int, before: int | None) -> Steps:
    at, first_at, first = step_seen_at(record), first_step_at(record), record.whole("first")
    first = highest if first is None else first
    if steps is None:
        ahead = first_at if before is None or first > before else None
        steps = Steps(first, first_at, first, first_at, ahead, record.number("steps_per_second") or 0.0)
    steps = replace(steps, first=min(steps.first, first), first_at=min(steps.first_at, first_at))
    if highest <= steps.last:
        return steps
    if steps.ahead_at is None and before is not None and highest > before:
        share = (before - steps.last) / (highest - steps.last)
        steps = replace(steps, ahead_at=steps.last_at + share * (at - steps.last_at))
    speed = record.number("steps_per_second") or steps.per_second
    return replace(steps, last=highest, last_at=max(at, steps.last_at), per_second=speed)


def _restored(generations: Generations, index: int, record: Record) -> Generation:
    entry, source = generations[index], record.text("source")
    if source not in SOURCES:
        return entry
    farthest = max(filter(None, (entry.restored_from, source)), key=SOURCES.index)
    return replace(entry, restored_from=farthest)


def highest_step(generations: Generations) -> int | None:
    """The highest step of all these generations."""
    return max((entry.steps.last for entry in generations if entry.steps), default=None)


_RULES: Final[Mapping[str, Callable[[Generations, int, Record], Generation]]] = {
    "workers_started": _started,
    "restart": _committed,
    "membership_change": _committed,
    "state_restored": _restored,
    "progress": _stepped,
}
