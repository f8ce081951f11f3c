"""The best interval between saves, by formula and by search, and the best range of nodes for a budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from elastic_infra.simulate import arms, study
from elastic_infra.simulate.scenario import HOUR, OF_NODES, Scenario

RUNS: Final = 8
"""Runs of each candidate, all with the same seeds, so that candidates differ by more than chance."""
STEP: Final = math.sqrt(2)
"""From one candidate for an interval to the next: around the best one goodput is flat."""
REACH: Final = 6
"""Candidates on each side of the formula's interval: from an eighth of it to eight times it."""
INTERRUPTIONS: Final = 100
"""Each run of a candidate for an interval is as long as so many interruptions take, so that chance plays no part."""
_SHARES: Final = (0.25, 0.5, 0.75, 1.0)
"""Minima, as shares of the maximum."""
_SIZES: Final = 8
"""The most sizes that are tried."""


def young(pause: float, mean_time: float) -> float:
    """Seconds of training between two saves: the first-order optimum.

    Args:
        pause: seconds for which training waits for a save.
        mean_time: seconds between two interruptions.

    J. W. Young, A first order approximation to the optimum checkpoint interval, 1974
    (https://doi.org/10.1145/361147.361115).
    """
    return math.sqrt(2 * pause * mean_time)


def daly(pause: float, mean_time: float) -> float:
    """The higher-order optimum, which holds where a pause is not short beside the time between interruptions.

    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, 2006
    (https://doi.org/10.1016/j.future.2004.11.016).
    """
    if pause >= 2 * mean_time:
        return mean_time
    part = pause / (2 * mean_time)
    return young(pause, mean_time) * (1 + math.sqrt(part) / 3 + part / 9) - pause


@dataclass(frozen=True)
class Interval:
    """The best interval between the saves of an arm, in seconds of training.

    Attributes:
        interruptions: mean seconds between two changes that cost work.
        young, daly: by formula.
        searched: the best of the simulated ones, with its mean goodput over many interruptions.
        given: the scenario's own, with its mean goodput in the same runs.
    """

    arm: arms.Name
    saves: str
    interruptions: float
    young: float
    daly: float
    searched: float
    searched_goodput: float
    given: float
    given_goodput: float


def interval(scenario: Scenario, name: arms.Name, seed: int) -> Interval | None:
    """The best interval for an arm; None where its choice cannot matter or the formulas have nothing to go by.

    That is so for an arm that repeats no more than a step, for saves without a pause, and without random changes that
    cost work.
    """
    arm = arms.arm(name, scenario)
    rate = _interruptions(scenario, arm)
    if arm.repeats_step_only or not arm.saving.pause_seconds or not rate:
        return None
    pause, mean_time = arm.saving.pause_seconds, 1 / rate
    first = young(pause, mean_time)
    lasting = replace(scenario, hours=INTERRUPTIONS * mean_time / HOUR, trace=(), returns=True)
    tried = {
        seconds: study.result(lasting, name, RUNS, seed, seconds).goodput.mean
        for seconds in (*(first * STEP**step for step in range(-REACH, REACH + 1)), arm.saving.interval_seconds)
    }
    best = max(tried, key=lambda seconds: tried[seconds])
    return Interval(
        name,
        arm.saves,
        mean_time,
        first,
        daly(pause, mean_time),
        best,
        tried[best],
        arm.saving.interval_seconds,
        tried[arm.saving.interval_seconds],
    )


def _interruptions(scenario: Scenario, arm: arms.Arm) -> float:
    """Changes a second that send the whole group back to its last save."""
    nodes = scenario.nodes[1]
    kinds = [kind for kind in OF_NODES if not arm.keeps_work(kind)]
    if nodes == 1 and arm.saves == "snapshot":
        kinds.remove("loss")  # the memory is lost too
    rate = nodes * sum(map(scenario.rate, kinds))
    # Each node that goes comes back; a group that waits for it has nothing to lose then.
    if arm.stops_in_step or not scenario.returns or not scenario.group(nodes - 1):
        return rate
    return rate + nodes * (scenario.rate("loss") + scenario.rate("preemption"))


@dataclass(frozen=True)
class Range:
    """A range of nodes, with the means of its runs."""

    nodes: tuple[int, int]
    hours: float
    node_hours: float


def best_range(scenario: Scenario, name: arms.Name, most_node_hours: float, seed: int) -> Range | None:
    """The range of nodes that finishes first with no more node-hours; None where no range does.

    Sizes are tried up to the most of the scenario, each with some minima.
    """
    tried = (_range(scenario, name, nodes, seed) for nodes in _ranges(scenario))
    within = [each for each in tried if each.node_hours <= most_node_hours]
    return min(within, key=lambda each: (each.hours, each.node_hours, each.nodes), default=None)


def _range(scenario: Scenario, name: arms.Name, nodes: tuple[int, int], seed: int) -> Range:
    candidate = replace(scenario, nodes=nodes, full_size=scenario.full_size or scenario.nodes[1])
    found = study.result(candidate, name, RUNS, seed)
    return Range(nodes, found.hours.mean, found.node_hours.mean)


def _ranges(scenario: Scenario) -> Iterator[tuple[int, int]]:
    units = scenario.nodes[1] // scenario.unit
    sizes = sorted({max(1, round(units ** (step / _SIZES))) for step in range(_SIZES + 1)})
    for size in sizes:
        for least in sorted({max(1, math.ceil(size * share)) for share in _SHARES}):
            yield least * scenario.unit, size * scenario.unit
