"""What an event cost a job, and what many costs say together. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cluster import figures

STEPS_TO_BE_BACK = 10
"""Each worker of the new group has made so many steps: it trains again."""


@dataclass(frozen=True)
class Sample:
    """One figure of one run."""

    row: str
    """Name of the measured row."""
    arm: str
    value: float | None
    """In the row's unit; None where there is none, as ``outcome`` says why."""
    outcome: str = "lost"


@dataclass(frozen=True)
class Summary:
    """The samples of one row and arm."""

    values: tuple[float, ...]
    without: Mapping[str, int]
    """How many runs gave no value, by outcome."""

    @property
    def median(self) -> float | None:
        """None where no run gave a value."""
        return statistics.median(self.values) if self.values else None

    @property
    def p95(self) -> float | None:
        """By nearest rank: with fewer than 20 values it is the largest."""
        return sorted(self.values)[math.ceil(0.95 * len(self.values)) - 1] if self.values else None

    @property
    def runs(self) -> int:
        """How many runs were made: those with a value and those without."""
        return len(self.values) + sum(self.without.values())


def summary(samples: Sequence[Sample], row: str, arm: str) -> Summary:
    """Of the samples that belong there."""
    mine = [sample for sample in samples if (sample.row, sample.arm) == (row, arm)]
    values = tuple(sample.value for sample in mine if sample.value is not None)
    return Summary(values, Counter(sample.outcome for sample in mine if sample.value is None))


def outage(steps: Sequence[Mapping[str, Any]], begin: float) -> float:
    """The longest time without a step of any worker, from the event to the last step."""
    return figures.outage(steps, begin)


def trains(steps: Sequence[Mapping[str, Any]], begin: float, world: int, old: Collection[int]) -> bool:
    """Whether a whole group of this size has made its steps since the event, in processes other than the old ones."""
    done = Counter(
        line["rank"]
        for line in steps
        if line["world"] == world and float(line["time"]) >= begin and line["pid"] not in old
    )
    return len(done) == world and min(done.values()) >= STEPS_TO_BE_BACK
