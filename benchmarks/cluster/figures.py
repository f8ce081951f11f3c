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
