"""What an event cost a job, read from the steps that its workers wrote. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

OURS: Final = "ours"
AIMS: Final[Mapping[str, float]] = {"plain": 0.1, "tuned": 0.5}
"""What part of another arm's outage ours may be."""


@dataclass(frozen=True)
class Cost:
    """What one event cost."""

    outage: float
    """Seconds of the longest time without a step, from the event on."""
    lost: int
    """Number of repeated steps."""
    restarts: int
    """Container restarts, in all pods that there were."""
    outcome: str
    """`succeeded`, or what went wrong."""


def outage(lines: Sequence[Mapping[str, Any]], event: float, end: float | None = None) -> float:
    """The longest time without a step of any worker from the event on; times are seconds since the epoch.

    Args:
        lines: what the workers wrote.
        event: when it happened.
        end: when the wait for training was given up; None where it was not, and only steps count.
    """
    after = sorted(float(line["time"]) for line in lines if float(line["time"]) >= event)
    times = [event, *after, *([end] if end is not None else [])]
    return max((late - early for early, late in itertools.pairwise(times)), default=0.0)


def lost(lines: Sequence[Mapping[str, Any]]) -> int:
    """Steps that rank 0 did again."""
    ordered = sorted((line for line in lines if line["rank"] == 0), key=lambda line: float(line["time"]))
    steps = [int(line["step"]) for line in ordered]
    return len(steps) - len(set(steps))


def table(costs: Mapping[str, Mapping[str, Cost]], arms: Sequence[str]) -> str:
    """A row for each event, a column for each arm, and one for each aim."""
    aims = [f"ours / {arm} (aim {aim:g})" for arm, aim in AIMS.items()]
    head = ["event", *arms, *aims]
    rows = [[event, *_cells(by_arm, arms)] for event, by_arm in costs.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _cells(by_arm: Mapping[str, Cost], arms: Sequence[str]) -> list[str]:
    ratios = [_ratio(by_arm.get(OURS), by_arm.get(arm), aim) for arm, aim in AIMS.items()]
    return [*(_cell(by_arm.get(arm)) for arm in arms), *ratios]


def _cell(cost: Cost | None) -> str:
    if cost is None:
        return "not run"
    return f"{cost.outage:.1f} s, {cost.lost} steps, {cost.restarts} restarts, {cost.outcome}"


def _ratio(ours: Cost | None, other: Cost | None, aim: float) -> str:
    if ours is None or other is None or not other.outage:
        return "not known"
    ratio = ours.outage / other.outage
    return f"{ratio:.2f}, {'met' if ratio <= aim else 'missed'}"
