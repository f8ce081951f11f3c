"""Makes workers die and nodes join in jobs of each arm, and says what each event cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.launcher.job import await_
from benchmarks.training import jobs, outage
from benchmarks.training.labels import GROW, KILL, LOSE, LOST_SECONDS, SNAPSHOT_STEPS

POLL_SECONDS: Final = 0.005


@dataclass(frozen=True)
class Sample:
    """One event in one job."""

    event: str
    megabytes: int
    arm: str
    cost: outage.Cost | None
    """None: the job did not train steadily any more."""


def run(arm: str, megabytes: int, last: str = LOSE) -> Iterator[Sample]:
    """One job: two nodes train, a worker is killed, a third node joins, and a node is lost; up to the last event."""
    with jobs.job(arm, megabytes) as nodes:
        for _ in range(2):
            nodes.start_node()
        if not _await_steady(nodes, 2, 0.0):
            yield Sample(KILL, megabytes, arm, None)
            return
        nodes.warm_up()
        events: list[tuple[str, int, Callable[[jobs.Nodes], None]]]
        events = [(KILL, 2, _kill), (GROW, 3, _grow), (LOSE, 2, _lose)]
        for event, world, strike in events:
            _await_middle(nodes)
            begin = time.monotonic()
            strike(nodes)
            if not _await_steady(nodes, world, begin):
                yield Sample(event, megabytes, arm, None)
                return
            yield Sample(event, megabytes, arm, outage.cost(nodes.steps.all, begin))
            if event == last:
                return


def _kill(nodes: jobs.Nodes) -> None:
    """The worker with the highest rank."""
    newest = nodes.steps.last("step", SNAPSHOT_STEPS)
    nodes.kill_worker(max(newest, key=lambda line: int(line["rank"]))["pid"])


def _grow(nodes: jobs.Nodes) -> None:
    nodes.start_node()


def _lose(nodes: jobs.Nodes) -> None:
    nodes.lose_node()


def _await_steady(nodes: jobs.Nodes, world: int, after: float) -> bool:
    def is_steady() -> bool:
        nodes.steps.read()
        return outage.is_steady(nodes.steps.all, world, after)

    return await_(is_steady, LOST_SECONDS)


def _await_middle(nodes: jobs.Nodes) -> None:
    """Wait for the middle between two snapshots, so that a restart repeats as many steps as it does on average.

    The event follows half a step after the end of a step, so that it breaks one.
    """

    def is_middle() -> bool:
        before = len(nodes.steps.all)
        nodes.steps.read()
        return any(line["step"] % SNAPSHOT_STEPS == SNAPSHOT_STEPS // 2 for line in nodes.steps.all[before:])

    await_(is_middle, LOST_SECONDS, POLL_SECONDS)
    times = [step.time for step in outage.new_steps(nodes.steps.all)[-2:]]
    time.sleep((times[1] - times[0]) / 2)
