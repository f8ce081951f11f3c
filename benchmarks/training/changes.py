"""Makes workers die and nodes join in jobs of each arm, and says what each event cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.launcher.job import await_
from benchmarks.training import jobs, outage
from benchmarks.training.labels import GROW, KILL, LOSE, LOST_SECONDS, SNAPSHOT_STEPS, STOPPED

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
        if not _start(nodes, 2):
            yield Sample(KILL, megabytes, arm, None)
            return
        events: list[tuple[str, int, Callable[[jobs.Nodes], None]]]
        events = [(KILL, 2, _kill), (GROW, 3, _grow), (LOSE, 2, _lose)]
        for event, world, strike in events:
            cost = _struck(nodes, world, strike)
            yield Sample(event, megabytes, arm, cost)
            if cost is None or event == last:
                return


def run_stopped(arm: str, megabytes: int) -> Sample:
    """One job of three nodes under this launcher: one is lost while the worker of another cannot leave its step."""
    with jobs.launched(megabytes, arm) as nodes:

        def strike(_: jobs.Nodes) -> None:
            newest = nodes.steps.last("step", 3 * SNAPSHOT_STEPS)  # some of each of three workers
            nodes.stop_worker({int(line["pid"]) for line in newest})
            nodes.lose_node()

        return Sample(STOPPED, megabytes, arm, _struck(nodes, 2, strike) if _start(nodes, 3) else None)


def _start(nodes: jobs.Nodes, count: int) -> bool:
    """Start so many nodes, and wait until they train as after a minute; whether they do."""
    for _ in range(count):
        nodes.start_node()
    if not _await_steady(nodes, count, 0.0):
        return False
    nodes.warm_up()
    return True


def _struck(nodes: jobs.Nodes, world: int, strike: Callable[[jobs.Nodes], None]) -> outage.Cost | None:
    """What the event costs a job that trains with so many workers afterwards; None where it does not."""
    _await_middle(nodes)
    begin = time.monotonic()
    strike(nodes)
    return outage.cost(nodes.steps.all, begin) if _await_steady(nodes, world, begin) else None


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
