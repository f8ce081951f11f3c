"""What an event cost a job, read from the steps that its workers wrote. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """What one event cost."""

    outage: float
    """Seconds of the longest time without a step, from the event on."""
    lost: int
    """Steps that were done again."""
    restarts: int
    """Container restarts, in all pods that there were."""
    outcome: str
    """`succeeded`, or what went wrong."""


def outage(lines: Sequence[Mapping[str, Any]], event: float) -> float:
    """The longest time without a step of any worker, from the event (seconds since the epoch) to the last step."""
    after = sorted(float(line["time"]) for line in lines if float(line["time"]) >= event)
    return max((late - early for early, late in itertools.pairwise([event, *after])), default=0.0)


def lost(lines: Sequence[Mapping[str, Any]]) -> int:
    """Steps that rank 0 did again."""
    ordered = sorted((line for line in lines if line["rank"] == 0), key=lambda line: float(line["time"]))
    steps = [int(line["step"]) for line in ordered]
    return len(steps) - len(set(steps))


def table(costs: Mapping[str, Mapping[str, Cost]], arms: Sequence[str]) -> str:
    """A row for each event, a column for each arm."""
    head = ["event", *arms]
    rows = [[event, *(_cell(by_arm.get(arm)) for arm in arms)] for event, by_arm in costs.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _cell(cost: Cost | None) -> str:
    if cost is None:
        return "not run"
    return f"{cost.outage:.1f} s, {cost.lost} steps, {cost.restarts} restarts, {cost.outcome}"
