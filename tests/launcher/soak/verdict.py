"""The laws of a soak, checked on its journal and the launchers' event lines. Pure.

Every function returns the violations it found, as lines for people; an empty answer is the law kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.launcher.soak.process_inventory import Worker

Line = Mapping[str, Any]


def guarantee(journal: Iterable[Line]) -> list[str]:
    """No two generations ever have all their workers running; no node starts one before it stopped the last.

    Each start was written with all workers alive then, itself included.
    """
    broken = []
    for line in journal:
        if line["event"] == "start":
            alive = tuple(Worker(**worker) for worker in line["alive"])
            broken += _one_moment(alive, line)
    return broken


def _one_moment(alive: tuple[Worker, ...], line: Line) -> list[str]:
    groups = {worker.group: worker.world for worker in alive}
    complete = [group for group, world in groups.items() if sum(other.group == group for other in alive) >= world]
    at = f"at {line['time']:.3f}, when rank {line['rank']} of generation {line['generation']} started"
    broken = [f"{at}, all workers were running of {complete}"] if len(complete) > 1 else []
    mine = (line["generation"], line["meeting"])
    older = [other.group for other in alive if other.node == line["node"] and other.group != mine]
    return [*broken, *([f"{at}, its own node still ran {older}"] if older else [])]


def told_order(events: Iterable[Line]) -> list[str]:
    """By the launchers' events too a node starts workers only after all its earlier workers have ended."""
    broken, open_workers = [], dict[str, int]()
    for line in events:
        node, event = line["node"], line["event"]
        if event in {
            "launcher_started",
            "agent_replaced",
        }:  # either way no worker is left
            open_workers[node] = 0
        elif event == "worker_started":
            open_workers[node] = open_workers.get(node, 0) + 1
        elif event == "worker_exited":
            open_workers[node] = max(0, open_workers.get(node, 0) - 1)
        elif event == "workers_started" and open_workers.get(node, 0):
            broken.append(f"{node} started generation {line['generation']} before {open_workers[node]} workers ended")
    return broken


def exact(journal: Iterable[Line], trajectory: Sequence[int]) -> list[str]:
    """Every step of every generation left the weight that a run without faults has there."""
    return [
        f"step {line['step']} of generation {line['generation']} left {line['weight']}, not {trajectory[line['step']]}"
        for line in journal
        if line["event"] == "step" and line["weight"] != trajectory[line["step"]]
    ]


def charged(journal: Iterable[Line]) -> int:
    """Restarts charged to the budget, over all lives of the store (a store that lost all its nodes counts anew).

    Every generation counts once, at its first line: workers of an old generation may still write after a new one's.
    One less than before is a charge given back, because the failure turned out to be the first sign of a lost node.
    """
    counts = dict.fromkeys((line["generation"], line["restarts"]) for line in journal)
    total = last = 0
    for _, now in counts:
        total += now - last if now >= last - 1 else now
        last = now
    return total


@dataclass(frozen=True)
class Injection:
    """An injected fault, and its target."""

    number: int
    kind: str
    target: str
    at: float
    paired: bool


def outages(journal: Iterable[Line], injections: Sequence[Injection]) -> list[float]:
    """For each fault, the longest time without a step from it on to the next fault."""
    steps = [line["time"] for line in journal if line["event"] == "step"]
    found = []
    for index, injection in enumerate(injections):
        until = injections[index + 1].at if index + 1 < len(injections) else float("inf")
        found.append(_longest_gap(steps, injection.at, until))
    return found


def _longest_gap(steps: Sequence[float], since: float, until: float) -> float:
    times = [time for time in steps if since <= time <= until]
    if not times:
        return 0.0 if until == float("inf") else until - since
    return max(later - earlier for earlier, later in zip([since, *times], times, strict=False))
