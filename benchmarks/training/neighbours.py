"""What copies of shards on another node cost a training: the part of the time that it waits for them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.launcher.job import await_
from benchmarks.training import jobs, outage
from benchmarks.training.labels import DEFAULT, LOST_SECONDS, WINDOW_SECONDS

SETTLED_SECONDS: Final = 15.0
"""By then the library has measured its copies, and knows how rare they have to be."""
NODES: Final = 2


def measured(megabytes: int, rounds: int) -> list[float]:
    """The part of the time that a sharded model's training waits for snapshots, one figure for each job."""
    found = []
    for _ in range(rounds):
        found.append(_waiting(megabytes))
        print(f"training waits {found[-1]:.2%} of the time", flush=True)
    return found


def _waiting(megabytes: int) -> float:
    with jobs.launched(megabytes, "sharded in place", DEFAULT) as nodes:
        for _ in range(NODES):
            nodes.start_node()
        await_(lambda: _trains(nodes), LOST_SECONDS)
        time.sleep(SETTLED_SECONDS + WINDOW_SECONDS)
        nodes.steps.read()
        return waited(nodes.steps.all, WINDOW_SECONDS)


def _trains(nodes: jobs.Nodes) -> bool:
    nodes.steps.read()
    return outage.is_steady(nodes.steps.all, NODES)


def waited(lines: Sequence[Mapping[str, Any]], window: float) -> float:
    """The part of the last seconds that rank 0 spent at the ends of its steps."""
    mine = sorted((float(line["time"]), float(line["waited"])) for line in lines if line["rank"] == 0)
    within = [each for each in mine if each[0] >= mine[-1][0] - window]
    (begin, _), *_, (end, _) = within
    return sum(seconds for _, seconds in within[1:]) / (end - begin)
