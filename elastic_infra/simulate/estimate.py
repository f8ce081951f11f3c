"""What many runs say together: a mean with its confidence interval, and the range of single runs. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
TAIL: Final = 0.05
"""The share of single runs beyond each end of their range."""
FEWEST_RUNS: Final = 5
"""With fewer runs the interval below says little."""


@dataclass(frozen=True)
class Estimate:
    """A figure of many runs."""

    mean: float
    low: float
    """The mean of endless runs is between ``low`` and ``high`` with 95 % confidence."""
    high: float
    p5: float
    """One run in twenty has less."""
    p95: float
    """One run in twenty has more."""


def estimate(values: Sequence[float]) -> Estimate:
    """The estimate from independent runs; without bounds where a run has no finite value."""
    if not all(map(math.isfinite, values)):
        return Estimate(math.inf, min(values), math.inf, min(values), math.inf)
    mean = statistics.fmean(values)
    half = _student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    ordered = sorted(values)
    rank = max(1, math.ceil(len(values) * TAIL))
    return Estimate(mean, mean - half, mean + half, ordered[rank - 1], ordered[-rank])


def _student(freedom: int) -> float:
    """The two-sided quantile of Student's t distribution.

    The first terms of its expansion around the normal one, right to a hundredth from four degrees of freedom on
    (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5).
    """
    z = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
