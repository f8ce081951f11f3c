"""The stages of a start, read from a pod's log, and their table. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from benchmarks.common.results import table as markdown
from benchmarks.launcher.measure import Summary

Times = dict[str, float]
"""Seconds by stage."""


def moments(log: Iterable[str], stages: Mapping[str, str]) -> Times:
    """When each stage was first reached, in seconds since the epoch.

    Args:
        log: lines of a pod whose launcher writes its events there.
        stages: what each stage is called, by its event.

    Raises:
        StopIteration: a stage was not reached.
    """
    events: list[Mapping[str, Any]] = [json.loads(line) for line in log if line.startswith('{"time"')]
    return {text: next(_at(event) for event in events if event["event"] == name) for name, text in stages.items()}


def _at(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(str(event["time"]).replace("Z", "+00:00")).timestamp()


def table(found: Sequence[Times], since: str, beside: str, first_beside: str) -> str:
    """A row for each stage: the median, p95 by nearest rank, the number of runs, and each run.

    Args:
        found: the runs.
        since: from when on the seconds count.
        beside: heading of what was measured beside the stages.
        first_beside: its first row.
    """
    rows = [[f"seconds from {since} until", "median", "p95", "n", "each"]]
    for name in found[0]:
        if name == first_beside:
            rows.append([f"**{beside}**", "", "", "", ""])
        each = Summary(tuple(times[name] for times in found), {})
        summed = (f"{each.median:.2f}", f"{each.p95:.2f}", str(each.runs))
        rows.append([name, *summed, ", ".join(f"{seconds:.2f}" for seconds in each.values)])
    return markdown(rows)
