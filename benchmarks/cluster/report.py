"""From what single events cost to the page: medians, ratios, and whether each aim was met. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.cluster.figures import Cost
from benchmarks.cluster.page import page
from benchmarks.common import results
from benchmarks.launcher.measure import Summary

OURS: Final = "ours"
ARMS: Final = ("plain", "tuned", OURS)
AIMS: Final[Mapping[str, float]] = {"plain": 0.1, "tuned": 0.5}
"""What part of another arm's outage ours may be."""
NOTE: Final = """\
Each cell is a separate job. The longest time without a step of any worker after the event (from the job's creation on
for the start) is a median, with p95 by nearest rank and the number of runs; beside it the steps that were repeated, the
restarts of containers and the outcome. A wait is given up after {limit} s, and a job that had not trained again by then
counts with that time. The script is the same in all arms and does not use the launcher. `plain` is torchrun as it
comes; `tuned` sets `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` and `last_call_timeout=3`; `ours` is this package's launcher.
Ratios are those of the medians. No pod has a bound on its CPU. For the start: two pods that only import torch had done
so {floor:.1f} s after their job was created, and the first step takes 0.2 s more."""


@dataclass(frozen=True)
class Sample:
    """One event of one job."""

    row: str
    arm: str
    cost: Cost


def kept(samples: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """The samples of a file."""
    return [Sample(each["row"], each["arm"], Cost(**each["cost"])) for each in samples]


def document(found: results.Results) -> str:
    """The page RESULTS.md of what was saved."""
    note = NOTE.format(limit=found["limit_seconds"], floor=found["import_seconds"])
    return page("What membership changes cost", found, note=note, table=table(kept(found["samples"])))


def table(samples: Sequence[Sample]) -> str:
    """A row for each event, a column for each arm, and one for each aim."""
    head = ["event", *ARMS, *(f"ours / {arm} (aim {aim:g})" for arm, aim in AIMS.items())]
    events = dict.fromkeys(sample.row for sample in samples)
    return results.table([head, *([event, *_cells(samples, event)] for event in events)])


def _cells(samples: Sequence[Sample], event: str) -> list[str]:
    costs = {arm: [each.cost for each in samples if (each.row, each.arm) == (event, arm)] for arm in ARMS}
    return [*map(_cell, costs.values()), *(_ratio(costs[OURS], costs[arm], aim) for arm, aim in AIMS.items())]


def _cell(costs: Sequence[Cost]) -> str:
    if not costs:
        return "not run"
    outages, outcomes = _outages(costs), Counter(cost.outcome for cost in costs)
    figures = f"{outages.median:.1f} s (p95 {outages.p95:.1f}, n {outages.runs})"
    counts = (_span([cost.lost for cost in costs]), _span([cost.restarts for cost in costs]))
    ends = (f"{end} {times} of {len(costs)}" if times < len(costs) else end for end, times in outcomes.items())
    return ", ".join([figures, f"{counts[0]} steps", f"{counts[1]} restarts", *ends])


def _ratio(ours: Sequence[Cost], others: Sequence[Cost], aim: float) -> str:
    median, control = _outages(ours).median, _outages(others).median
    if median is None or not control:
        return "not known"
    return f"{median / control:.2f}, {'met' if median / control <= aim else 'missed'}"


def _outages(costs: Sequence[Cost]) -> Summary:
    return Summary(tuple(cost.outage for cost in costs), {})


def _span(counts: Sequence[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if len({*counts}) > 1 else str(counts[0])
