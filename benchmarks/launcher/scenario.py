"""What happens to a job: events as data, and chains of them that one job can live through."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.launcher import arms, measure
from benchmarks.launcher.job import TRAIN, TRAIN_HF, TRAIN_LIGHTNING, VARIABLE_FIRST, Job, await_, folder, kill
from benchmarks.launcher.measure import Sample

LOST_SECONDS: Final = 100.0
"""A job without a step for so long counts as lost; torchrun's own longest wait is 60 s."""
STEADY_SECONDS: Final = 3.0
"""A job trains for so long before something happens to it."""


@dataclass(frozen=True)
class Event:
    """Something that happens to a job that trains."""

    row: str
    before: int
    """Workers that train when it happens; 0: it starts the job."""
    after: int
    strike: Callable[[Job], None]
    replaces_workers: bool = True
    """Whether other processes train afterwards."""
    steady_seconds: float = STEADY_SECONDS
    """The job trains for so long before it happens."""


@dataclass(frozen=True)
class Chain:
    """Events that follow each other in one job; an arm that loses the job gets a new one for the next event."""

    name: str
    launch: arms.Launch
    events: tuple[Event, ...]
    arms: tuple[arms.Arm, ...] = arms.ARMS
    repeat: int = 1
    """How often the events happen in one job."""
    script: Path = TRAIN
    needs: str = "torch"
    """A package without which the chain is left out."""

    def rounds(self, runs: int) -> int:
        """Jobs that are needed for so many runs of each event."""
        return math.ceil(runs / self.repeat)


def start(nodes: int) -> Callable[[Job], None]:
    """The nodes come, at the same time."""

    def strike(job: Job) -> None:
        for _ in range(nodes):
            job.start_node()

    return strike


def crash(job: Job) -> None:
    """The worker with the highest rank is killed."""
    kill(max(job.steps()[-20:], key=lambda line: int(line["rank"]))["pid"])


def restart_store(job: Job) -> None:
    """The store is gone and comes back empty a second later."""
    job.kill_store()
    time.sleep(1)
    job.start_store()


GROW: Final = Chain(
    "grow",
    arms.Launch("1:3"),
    (
        Event("start with 2 of 3 nodes", 0, 2, start(2)),
        Event("scale up 2 to 3", 2, 3, start(1)),
        Event("lost node, 3 to 2", 3, 2, lambda job: job.lose(job.other_node())),
    ),
)
SHRINK: Final = Chain(
    "shrink",
    arms.Launch("1:3"),
    (
        Event("scale down 3 to 2", 3, 2, lambda job: job.leave(job.other_node())),
        Event("lost store host, 2 to 1", 2, 1, lambda job: job.lose(job.store_host())),
    ),
)
CRASH: Final = Chain(
    "crash",
    arms.Launch("1:1", workers=2, max_restarts=100),
    (Event("restart of 2 workers", 2, 2, crash),),
    repeat=4,
)
STORE: Final = Chain(
    "store",
    arms.Launch("1:3", hosts_store=False),
    (Event("restart of a store of its own", 2, 2, restart_store, replaces_workers=False),),
    arms=(arms.OURS,),
    repeat=5,
)


def _grow(workers: int) -> Chain:
    """Nodes of so many workers: one starts, a second comes and is lost."""
    return Chain(
        f"grow-{workers}",
        arms.Launch("1:2", workers=workers),
        (
            Event(f"start of {workers} workers on a node", 0, workers, start(1)),
            Event(f"scale up {workers} to {2 * workers} workers", workers, 2 * workers, start(1)),
            Event(
                f"lost node, {2 * workers} to {workers} workers",
                2 * workers,
                workers,
                lambda job: job.lose(job.other_node()),
            ),
        ),
    )


GROW_2: Final = _grow(2)
GROW_8: Final = _grow(8)
CRASH_8: Final = Chain(
    "crash-8",
    arms.Launch("1:1", workers=8, max_restarts=100),
    (Event("restart of 8 workers", 8, 8, crash),),
    repeat=4,
)
VARIABLE_8: Final = Chain(
    "variable-8",
    arms.Launch("1:1", workers=8),
    (Event("start of 8 workers, the script sets a variable first", 0, 8, start(1)),),
    script=VARIABLE_FIRST,
)


def _heavy(package: str, script: Path) -> Chain:
    """A crash in a script whose restart costs its imports."""
    return Chain(
        "heavy-imports",
        arms.Launch("1:1", workers=2, max_restarts=100),
        (Event(f"restart of 2 workers that import {package}", 2, 2, crash, steady_seconds=60),),
        repeat=2,
        script=script,
        needs=package,
    )


HEAVY: Final = (_heavy("transformers", TRAIN_HF), _heavy("lightning", TRAIN_LIGHTNING))
CHAINS: Final = (GROW, SHRINK, CRASH, STORE, GROW_2, GROW_8, CRASH_8, VARIABLE_8, *HEAVY)


def run(chain: Chain, arm: arms.Arm, say: Callable[[str], None]) -> Iterator[Sample]:
    """One job of the chain, or more where the arm loses it."""
    with ExitStack() as stack:
        job: Job | None = None
        for event in chain.events * chain.repeat:
            if job is None:
                job = _new(chain, arm, event, stack)
            if job is None:
                yield Sample(event.row, arm.name, None, "did not start")
                continue
            cost = _happen(job, event)
            yield Sample(event.row, arm.name, cost)
            if cost is None:
                say(f"{arm.name} lost the job: {event.row}; its launchers ended with {_codes(job)}")
                stack.pop_all().close()
                job = None


def _new(chain: Chain, arm: arms.Arm, event: Event, stack: ExitStack) -> Job | None:
    """A job in which the event can happen; None where it does not even start."""
    path = stack.enter_context(folder())
    job = stack.enter_context(Job(path, arm, chain.launch, (str(chain.script), str(path / "checkpoint"))))
    if not chain.launch.hosts_store:
        job.start_store()
    if event.before == 0:
        return job
    nodes = event.before // chain.launch.workers
    started = _happen(job, Event("start", 0, event.before, start(nodes)))
    return None if started is None else job


def _happen(job: Job, event: Event) -> float | None:
    """Let it happen to a job that trains steadily; what it cost, None where the job is lost."""
    if event.before:
        job.warm_up()
        time.sleep(event.steady_seconds)
    old = {line["pid"] for line in job.steps()} if event.replaces_workers else set()
    begin = time.monotonic()
    event.strike(job)
    if not event.replaces_workers:
        time.sleep(STEADY_SECONDS)
    if not await_(lambda: _is_decided(job, event, begin, old), 2 * LOST_SECONDS):
        return None
    return measure.outage(job.steps(), begin) if job.trains(event.after, begin, old) else None


def _is_decided(job: Job, event: Event, begin: float, old: set[int]) -> bool:
    """Whether the workers train again, or will not any more."""
    newest = max((float(line["time"]) for line in job.steps()), default=begin)
    silent = time.monotonic() - max(begin, newest)
    return job.trains(event.after, begin, old) or silent >= LOST_SECONDS or job.has_ended()


def _codes(job: Job) -> list[int | None]:
    return [node.process.poll() for node in job.nodes]
