"""The launcher's own requirements that have a number: signals, grace, siblings, watchdog, lost node, start.

Workers without torch, so that what is measured is the launcher. A control that does not do it within its patience has
the outcome instead of a figure.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from benchmarks.launcher import arms
from benchmarks.launcher.job import BEHAVE, Job, Line, await_, folder, kill
from benchmarks.launcher.measure import Sample
from elastic_infra.manifests import archive
from tests.launcher.launched import ROOT, Launched
from tests.launcher.loopback import tree

PATIENCE_SECONDS: Final = 60.0
"""Longer than a control needs for what it does at all."""
QUICK_POLL_SECONDS: Final = 0.001
CONTAINER: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
GRACE_SECONDS: Final = 6
MONITOR_SECONDS: Final = 5
SETTLE_SECONDS: Final = 0.3


@dataclass(frozen=True)
class Requirement:
    """One measurement, which may yield more than one row."""

    name: str
    measure: Callable[[arms.Arm, int], Iterator[Sample]]
    runs: int
    """Figures of this launcher's runs."""
    control_runs: int


def handler(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """From exec until SIGTERM has a handler."""
    for _ in range(runs):
        with _job(arm, arms.Launch(), "wait") as job:
            node = job.start_node()
            begin = time.monotonic()
            handled = await_(partial(node.is_handling, signal.SIGTERM), PATIENCE_SECONDS, QUICK_POLL_SECONDS)
            yield _sample("R1 handler of SIGTERM is live", arm, time.monotonic() - begin if handled else None, "never")


def ready(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """From exec until the node can be in a group, and until the first line of a script without torch runs."""
    return _starts(arm, runs, "launcher's start")


def mounted(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """The same of the launcher as pods get it: sources in a zip, without bytecode, which is compiled at each start."""
    with folder() as path:
        package = path / "launcher.zip"
        package.write_bytes(archive.build(ROOT / "elastic_infra"))
        yield from _starts(replace(arm, environ={"PYTHONPATH": str(package)}), runs, "mounted launcher's start")


def _starts(arm: arms.Arm, runs: int, what: str) -> Iterator[Sample]:
    for _ in range(runs):
        with _job(arm, arms.Launch(), "wait") as job:
            begin = time.monotonic()
            job.start_node()
            yield _sample(f"{what} to the script's first line", arm, _until(job, "started", begin), "never")
            if arm.name == arms.OURS.name:
                at = job.events("rendezvous_started")[0]["monotonic"]
                yield _sample(f"{what} to READY", arm, at - begin, "never")


def termination(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """PID 1 of a container, which waits for a second node, is told to end."""
    for _ in range(runs):
        with _job(arm, arms.Launch("2:2"), "wait") as job:
            node = job.start_node(*CONTAINER)
            time.sleep(1 if arm is arms.OURS else 10)
            begin = time.monotonic()
            os.kill(node.children()[0], signal.SIGTERM)
            ended = await_(job.has_ended, 20, QUICK_POLL_SECONDS)
            seconds = time.monotonic() - begin if ended else None
            yield _sample("R1 SIGTERM to the end, as PID 1 without workers", arm, seconds, "ignored")


def grace(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """How long a worker that saves lives on after its sibling failed."""
    options = ("--shutdown-timeout", str(GRACE_SECONDS))
    for _ in range(runs):
        with _job(arm, arms.Launch(workers=2, max_restarts=0, options=options), "save_for_long") as job:
            job.start_node()
            await_(job.has_ended, 2 * PATIENCE_SECONDS)
            times = [line["time"] for line in job.journal() if line["event"] in {"told", "alive"}]
            yield _sample(f"R2 grace given where {GRACE_SECONDS} s were asked for", arm, times[-1] - times[0], "")


def siblings(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """A worker is killed: its sibling is told, then both are started anew."""
    options = ("--monitor-interval", str(MONITOR_SECONDS))
    with _job(arm, arms.Launch(workers=2, max_restarts=10 * runs, options=options), "obey") as job:
        job.start_node()
        for run in range(1, runs + 1):
            await_(partial(_has, job, "ready", 2 * run), PATIENCE_SECONDS)
            time.sleep(SETTLE_SECONDS)
            victim = next(line for line in reversed(_lines(job, "ready")) if line["rank"] == 1)
            begin = time.monotonic()
            kill(victim["pid"])
            restarted = await_(partial(_has, job, "started", 2 * run + 2), PATIENCE_SECONDS)
            told = _until(job, "told", begin)
            newest = max(line["time"] for line in _lines(job, "started")) - begin
            yield _sample("R4 worker killed to sibling told", arm, told, "never")
            seconds = newest - told if told is not None and restarted else None
            yield _sample("R4 sibling told to new workers", arm, seconds, "never")


def watchdog(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """The agent is frozen and all its workers are dead: another agent starts workers."""
    for _ in range(runs):
        with _job(arm, arms.Launch(workers=2), "wait") as job:
            node = job.start_node()
            await_(partial(_has, job, "started", 2), PATIENCE_SECONDS)
            time.sleep(1)
            os.kill(_agent(node, arm), signal.SIGSTOP)
            begin = time.monotonic()
            for line in _lines(job, "started"):
                kill(line["pid"])
            restarted = await_(partial(_has, job, "started", 4), PATIENCE_SECONDS / 2)
            newest = max(line["time"] for line in _lines(job, "started")) - begin
            seconds = newest if restarted else None
            yield _sample("R6 frozen agent with dead workers to new workers", arm, seconds, "never")


def lost_node(arm: arms.Arm, runs: int) -> Iterator[Sample]:
    """A node is lost while no collective would show it."""
    for _ in range(runs):
        with _job(arm, arms.Launch("1:2", max_restarts=0), "step") as job:
            job.start_node()
            job.start_node()
            await_(partial(job.trains, 2), 2 * PATIENCE_SECONDS)
            lost = job.other_node()
            begin = time.monotonic()
            job.lose(lost)
            await_(partial(_is_alone, job, begin), PATIENCE_SECONDS)
            alone = (line["time"] - begin for line in job.steps() if line["world"] == 1 and line["time"] >= begin)
            yield _sample("R7 lost node to a step without it", arm, min(alone, default=None), "unaware")


REQUIREMENTS: Final = (
    Requirement("handler", handler, 20, 3),
    Requirement("ready", ready, 20, 3),
    Requirement("mounted", mounted, 20, 0),
    Requirement("termination", termination, 10, 2),
    Requirement("grace", grace, 5, 1),
    Requirement("siblings", siblings, 20, 5),
    Requirement("watchdog", watchdog, 5, 1),
    Requirement("lost-node", lost_node, 5, 1),
)
"""A control's run can take a minute of waiting for nothing."""


@contextmanager
def _job(arm: arms.Arm, launch: arms.Launch, behaviour: str) -> Iterator[Job]:
    with folder() as path, Job(path, arm, launch, (str(BEHAVE), behaviour)) as job:
        yield job


def _sample(row: str, arm: arms.Arm, value: float | None, outcome: str) -> Sample:
    return Sample(row, arm.name, value, outcome)


def _lines(job: Job, event: str) -> list[Line]:
    return [line for line in job.journal() if line["event"] == event]


def _has(job: Job, event: str, number: int) -> bool:
    return len(_lines(job, event)) >= number


def _until(job: Job, event: str, begin: float) -> float | None:
    """Seconds to the first such line since then, waited for."""

    def times() -> list[float]:
        return [line["time"] - begin for line in _lines(job, event) if line["time"] >= begin]

    await_(lambda: bool(times()), PATIENCE_SECONDS)
    return min(times(), default=None)


def _is_alone(job: Job, begin: float) -> bool:
    return any(line["world"] == 1 and line["time"] >= begin for line in job.steps())


def _agent(node: Launched, arm: arms.Arm) -> int:
    """Torchrun is one process; our agent is the first that the supervisor forked."""
    return min(tree(node.process.pid)[1:]) if arm is arms.OURS else node.process.pid
