"""What copies of shards on another node cost a training: the length of its steps with and without them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.launcher.job import await_
from benchmarks.training import jobs, outage
from benchmarks.training.labels import DEFAULT, LOST_SECONDS, WINDOW_SECONDS, WITH, WITHOUT
from benchmarks.training.train import ENDLESS

SETTLED_SECONDS: Final = 15.0
"""By then the library has measured its copies, and knows how rare they have to be."""
NODES: Final = 2
OPTIONS: Final = {WITHOUT: str(ENDLESS), WITH: DEFAULT}


def measured(megabytes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of a sharded model, snapshots included: the mean over the window of each job, in turns."""
    found: dict[str, list[float]] = {name: [] for name in OPTIONS}
    for _ in range(rounds):
        for name, option in OPTIONS.items():
            found[name].append(_step_seconds(megabytes, option))
            print(f"{name}: {found[name][-1]:.4f} s a step", flush=True)
    return found


def _step_seconds(megabytes: int, option: str) -> float:
    with jobs.launched(megabytes, "sharded in place", option) as nodes:
        for _ in range(NODES):
            nodes.start_node()
        await_(lambda: _trains(nodes), LOST_SECONDS)
        time.sleep(SETTLED_SECONDS + WINDOW_SECONDS)
        nodes.steps.read()
        return mean_step(nodes.steps.all, WINDOW_SECONDS)


def _trains(nodes: jobs.Nodes) -> bool:
    nodes.steps.read()
    return outage.is_steady(nodes.steps.all, NODES)


def mean_step(lines: Sequence[Mapping[str, Any]], window: float) -> float:
    """Seconds of a step, over the last steps of one rank that lie within the window."""
    times = sorted(float(line["time"]) for line in lines if line["rank"] == 0)
    within = [each for each in times if each >= times[-1] - window]
    return (within[-1] - within[0]) / (len(within) - 1)
