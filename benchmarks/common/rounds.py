"""Programs that are measured in rounds, one after the other in each: medians, and ratios inside a round. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.launcher.measure import Summary

Rounds = Sequence[Mapping[str, float]]
"""The figures of each round of one program."""


class Figure(NamedTuple):
    """How a figure is shown."""

    head: str
    unit: float = 1
    decimals: int = 1
    is_time: bool = False
    """Then it has its p95, where it was taken more than once."""


def ratio(name: str, rounds: Rounds, base: Rounds) -> float:
    """The median of the ratios of one figure in each round; of a program with fewer rounds, in those that it has."""
    return statistics.median(ours[name] / theirs[name] for ours, theirs in zip(rounds, base, strict=False))


def cell(name: str, figure: Figure, rounds: Rounds, *bases: Rounds) -> str:
    """One figure with its p95 and its ratio to each base."""
    summary = Summary(tuple(each[name] / figure.unit for each in rounds), {})
    p95 = [f"p95 {summary.p95:.{figure.decimals}f}"] if figure.is_time and summary.runs > 1 else []
    ratios = ", ".join(f"{ratio(name, rounds, base):.2f}" for base in bases)
    return f"{summary.median:.{figure.decimals}f} ({'; '.join([*p95, ratios])})"
