"""The figures of a history. Pure; each figure's docstring defines it.

*Goodput* is used as in the field: the share of the time that went into training progress that was kept
(https://docs.cloud.google.com/tpu/docs/goodput; introduced as one factor of "ML productivity goodput" in
https://cloud.google.com/blog/products/ai-machine-learning/goodput-metric-as-measure-of-ml-productivity).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from elastic_infra.timeline.generations import Cause, Generation, Generations, Kind, Steps, highest_step
from elastic_infra.timeline.history import History
from elastic_infra.timeline.job import Outcome


@dataclass(frozen=True)
class Outage:
    """A time without steps, between two generations with steps, or after the last one of a job that went on."""

    kind: Kind
    """The kind of change that ended the training: the first one, where several came in a row."""
    cause: Cause | None
    begin: float
    """Unix seconds of the last step before."""
    seconds: float
    """From the last step seen before to the first step after, or to the end of the events."""
    is_over: bool
    changes: int
    """Number of generations until a step was made."""
    steps_lost: int
    """Number of steps that were repeated because no checkpoint held them: the highest step before minus the first one
    after plus one. 0 where no step is repeated."""
    source: str = ""
    """Where the state came from with which training went on: ``process``, ``memory``, ``peer``, ``disk``, ``nothing``;
    of several nodes the farthest; empty where the script did not say."""


@dataclass(frozen=True)
class Figures:
    """The numbers beside the picture. None means unknown, because the script reported no steps."""

    outcome: Outcome
    wall_seconds: float
    """Time from the first event to the last event that is not the store's."""
    training_seconds: float | None
    """The time in which steps were made: for each generation from its first step to its last one seen. The duration of
    the first step, saving at the end, hangs and all time between generations are left out."""
    repeated_seconds: float | None
    """The part of ``training_seconds`` in which steps were repeated that an earlier generation had made."""
    training_share: float | None
    """``training_seconds`` as a share of ``wall_seconds``."""
    goodput: float | None
    """``training_seconds`` minus ``repeated_seconds``, as a share of ``wall_seconds``."""
    first_step_seconds: float | None
    """Time from the first event to the first step."""
    steps: int | None
    """Number of different steps made."""
    steps_lost: int
    """Sum over the outages."""
    samples: int | None
    """Samples on which the job has trained, as last reported, without those that were taken back."""
    checkpoint: int | None
    """The newest step on disk, as last reported."""
    memory_step: int | None
    """The newest step with a snapshot in a node's memory, as last reported."""
    generations: int
    smallest_world: int
    largest_world: int
    restarts: dict[Kind, int]
    """Changes of generation by kind; those of one outage count each."""
    moves: int
    """Those of them in which workers kept their processes."""
    outage_seconds: float
    """Sum over the outages."""
    longest_outage_seconds: float
    outages: tuple[Outage, ...]


def figures(history: History) -> Figures:
    """All figures of a history."""
    steps = [entry.steps for entry in history.generations if entry.steps]
    training, repeated = sum(map(_seconds, steps)), sum(map(_repeated, steps))
    found = outages(history)
    worlds = [entry.world_size for entry in history.generations if entry.world_size]
    highest = highest_step(history.generations)
    return Figures(
        outcome=history.outcome,
        wall_seconds=history.seconds,
        training_seconds=training if steps else None,
        repeated_seconds=repeated if steps else None,
        training_share=_share(training, history) if steps else None,
        goodput=_share(training - repeated, history) if steps else None,
        first_step_seconds=steps[0].first_at - history.begin if steps else None,
        steps=None if highest is None else highest - min(each.first for each in steps) + 1,
        steps_lost=sum(outage.steps_lost for outage in found),
        samples=_last_told(entry.samples for entry in history.generations),
        checkpoint=_last_told(entry.checkpoint for entry in history.generations),
        memory_step=_last_told(entry.memory_step for entry in history.generations),
        generations=len(history.generations),
        smallest_world=min(worlds, default=0),
        largest_world=max(worlds, default=0),
        restarts=restarts(history.generations),
        moves=sum(entry.moved for entry in history.generations),
        outage_seconds=sum(outage.seconds for outage in found),
        longest_outage_seconds=max((outage.seconds for outage in found), default=0.0),
        outages=found,
    )


def outages(history: History) -> tuple[Outage, ...]:
    """All outages between the first step and the end of the job."""
    entries = history.generations
    active = [index for index, entry in enumerate(entries) if entry.steps]
    found = [_outage(entries, index, after) for index, after in itertools.pairwise(active)]
    if active and active[-1] + 1 < len(entries) and history.outcome != "succeeded":
        found.append(_outage(entries, active[-1], None, history.end))
    return tuple(found)


def _outage(entries: Generations, before: int, after: int | None, end: float = 0.0) -> Outage:
    begin = _last_at(entries[before])
    came = entries[before + 1]
    steps = entries[after].steps if after is not None else None
    highest = highest_step(entries[: before + 1])
    return Outage(
        kind=came.kind or "membership",
        cause=came.cause,
        begin=begin,
        seconds=max(0.0, (steps.first_at if steps else end) - begin),
        is_over=steps is not None,
        changes=(len(entries) - 1 if after is None else after) - before,
        steps_lost=max(0, (highest or 0) - steps.first + 1) if steps else 0,
        source=entries[after].restored_from if after is not None else "",
    )


def _last_told(told: Iterable[int | None]) -> int | None:
    known = [each for each in told if each is not None]
    return known[-1] if known else None


def _last_at(entry: Generation) -> float:
    return entry.steps.last_at if entry.steps else entry.begin


def _seconds(steps: Steps) -> float:
    return steps.last_at - steps.first_at


def _repeated(steps: Steps) -> float:
    return (steps.last_at if steps.ahead_at is None else max(steps.ahead_at, steps.first_at)) - steps.first_at


def _share(seconds: float, history: History) -> float:
    return seconds / history.seconds if history.seconds > 0 else 0.0


def restarts(entries: Generations) -> dict[Kind, int]:
    """Changes of generation by kind."""
    counts: dict[Kind, int] = {"failure": 0, "hang": 0, "membership": 0, "preemption": 0}
    for entry in entries[1:]:
        counts[entry.kind or "membership"] += 1
    return counts
