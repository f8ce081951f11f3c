"""What a change of members cost a job, read from its workers' journal. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Line = Mapping[str, Any]

STEADY_STEPS: Final = 4
"""Each worker of a group has made so many steps: the job trains again, and the length of its steps is known."""


@dataclass(frozen=True)
class Cost:
    """What one event cost, in seconds."""

    first: float
    """From the last step before the change to the first new step behind it, less one ordinary step."""
    whole: float
    """The same, summed over all changes until the job had its full size again."""
    repeated: int
    """Number of whole steps that were done again."""


@dataclass(frozen=True)
class Step:
    """The moment at which a step was done for the first time."""

    number: int
    time: float
    generation: int


def new_steps(lines: Sequence[Line]) -> list[Step]:
    """Every step when its first worker had done it for the first time, in order."""
    found: dict[int, Step] = {}
    for line in sorted(lines, key=lambda line: float(line["time"])):
        number = int(line["step"])
        if number > max(found, default=0):
            found[number] = Step(number, float(line["time"]), int(line["generation"]))
    return list(found.values())


def cost(lines: Sequence[Line], event: float) -> Cost:
    """What the event cost; the job must have trained on steadily.

    Args:
        lines: the steps of all workers.
        event: when it happened.

    Raises:
        ValueError: no generation began after the event.
    """
    steps = new_steps(lines)
    changes = [(a, b) for a, b in itertools.pairwise(steps) if b.time > event and a.generation != b.generation]
    if not changes:
        message = "no generation began after the event"
        raise ValueError(message)
    lost = [b.time - a.time - _ordinary(steps, b.generation) for a, b in changes]
    return Cost(lost[0], sum(lost), _repeated(lines, changes[0][0]))


def is_steady(lines: Sequence[Line], world: int, after: float = 0.0) -> bool:
    """Whether a whole group of this size, made after that moment, has trained for some steps."""
    if not lines:
        return False
    newest = lines[-1]["generation"]
    mine = [line for line in lines if line["generation"] == newest]
    before = {line["generation"] for line in lines if float(line["time"]) <= after}
    known = {step.number for step in new_steps(lines) if step.generation == newest}
    done = Counter(line["rank"] for line in mine if line["world"] == world and line["step"] in known)
    return newest not in before and len(done) == world and min(done.values()) > STEADY_STEPS


def _ordinary(steps: Sequence[Step], generation: int) -> float:
    """The usual length of a generation's steps; of the last generation's where this one made too few."""
    for each in (generation, steps[-1].generation):
        gaps = list(_gaps(steps, each))
        if len(gaps) >= STEADY_STEPS - 1:
            return statistics.median(gaps)
    message = "the job did not train on long enough to tell the length of its steps"
    raise ValueError(message)


def _gaps(steps: Sequence[Step], generation: int) -> Iterator[float]:
    return (b.time - a.time for a, b in itertools.pairwise(steps) if a.generation == b.generation == generation)


def _repeated(lines: Sequence[Line], last: Step) -> int:
    again = {line["step"] for line in lines if line["generation"] > last.generation and line["step"] <= last.number}
    return len(again)
