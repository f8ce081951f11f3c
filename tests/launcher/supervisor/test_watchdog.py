"""When the supervisor gives up on the agent; the zombie-counting rule is here as the control only."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_infra.launcher import processes
from elastic_infra.launcher.supervisor import watchdog
from elastic_infra.launcher.supervisor.watchdog import Observation, Watch


def fires(observations: Sequence[Observation]) -> float | None:
    """The time at which the watchdog fires, or None."""
    watch = Watch()
    for seen in observations:
        watch, fire = watchdog.decide(watch, seen)
        if fire:
            return seen.now
    return None


def seen(now: float, **changes: object) -> Observation:
    usual: dict[str, object] = {
        "now": now,
        "beats": int(now * 2),
        "phase": "monitoring",
        "spawn": 1,
        "running": 2,
        "started": 2,
        "stopping": False,
    }
    return Observation(**{**usual, **changes})  # type: ignore[arg-type]


def every_second(until: int, **changes: object) -> list[Observation]:
    return [seen(float(now), **changes) for now in range(until)]


CASES = [
    ("healthy", every_second(100), None),
    ("frozen agent, workers train", every_second(100, beats=7), 10.0),
    ("frozen agent, all workers ended", every_second(100, beats=7, running=0), 10.0),
    ("frozen agent while it waits for peers", every_second(100, beats=7, phase="rendezvous", started=0), 10.0),
    ("long rendezvous", every_second(100, phase="rendezvous", running=0, started=0), None),
    ("all workers ended and the agent does not see it", every_second(100, running=0), 10.0),
    ("all workers ended and the group is being stopped", every_second(100, running=0, stopping=True), None),
    ("all workers ended, the agent waits for peers", every_second(100, running=0, phase="finishing"), None),
    ("one of two workers ended", every_second(100, running=1), None),
    ("the supervisor itself was paused", [seen(0.0, beats=1), seen(3600.0, beats=1), seen(3600.5, beats=2)], None),
]


@pytest.mark.parametrize(("case", "observations", "expected"), CASES, ids=[case[0] for case in CASES])
def test_cases(case: str, observations: list[Observation], expected: float | None) -> None:
    """Each case fires at its time, or never."""
    assert expected == fires(observations), case


STAGES = [
    ("rendezvous", 0, True),
    ("starting", 0, True),
    ("monitoring", 4, False),
    ("monitoring", 1, False),
    ("monitoring", 0, False),
    ("stopping", 0, True),
    ("finishing", 0, False),
]


def healthy_life(seed: int) -> list[Observation]:
    """A life in which the agent beats every five seconds at least and notices ended workers within five.

    However long it waits for peers, stops or restarts, and however often the supervisor is late.
    """
    choose = random.Random(seed)
    now, beats, silent, spawn, life = 0.0, 0, 0.0, 0, []
    for _ in range(choose.randint(1, 30)):
        phase, running, stopping = choose.choice(STAGES)
        spawn += phase == "starting"
        ended = (phase, running) == ("monitoring", 0)
        until = now + (5.0 if ended else choose.choice([1.0, 30.0]))
        while now < until:
            passed = choose.choice([0.2, 1.0, 1.5])
            now, silent = now + passed, silent + passed
            if silent > 3.0 or choose.random() < 0.5:
                beats, silent = beats + 1, 0.0
            life.append(Observation(now, beats, phase, spawn, running, 4, stopping))
        if ended:
            life.append(Observation(now, beats, "stopping", spawn, 0, 4, stopping=True))
    return life


SEEDS = st.integers(0, 2**32)


@settings(max_examples=1000, deadline=None)
@given(seed=SEEDS)
def test_r6_no_healthy_job_is_ended(seed: int) -> None:
    """R6: in 1000 random lives of healthy launches the watchdog never fires."""
    assert fires(healthy_life(seed)) is None


@settings(deadline=None)
@given(seed=SEEDS)
def test_r6_a_frozen_agent_is_always_seen(seed: int) -> None:
    """R6: after any history, an agent that stops beating is given up within 12 seconds of looks."""
    life = healthy_life(seed)
    last = life[-1]
    frozen = [
        Observation(last.now + tick, last.beats, last.phase, last.spawn, last.running, 4, last.stopping)
        for tick in range(1, 16)
    ]
    at = fires([*life, *frozen])

    assert at is not None
    assert at <= last.now + 12


# ------------------------------------------------------------------ control


def zombie_count_fires(parent: int, nproc_per_node: int) -> bool:
    """The rule of the control arm: as many zombie children as there are workers (flyte-sdk, ``task.py``)."""
    zombies = [one for one in processes.scan() if one.parent == parent and one.state == "Z"]
    return len(zombies) >= nproc_per_node


HEALTHY_PARENT = """
import os, subprocess, sys, time
for _ in range(4):
    if os.fork() == 0:
        os._exit(0)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(worker.pid, flush=True)
time.sleep(600)
"""
"""An agent as PID 1 or sub-reaper: four orphaned loaders of an old worker are zombies, the new worker is healthy."""

DEADLOCKED_PARENT = """
import os, signal, subprocess, sys, time
workers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)]
os.kill(workers[0].pid, signal.SIGABRT)
print(workers[1].pid, flush=True)
time.sleep(600)
"""
"""A stuck agent: one worker is dead and not waited for, the other blocks without end on a lock that the dead one
held."""


def zombies_settle(parent: int, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if sum(one.parent == parent and one.state == "Z" for one in processes.scan()) == count:
            return
        time.sleep(0.02)
    message = "the zombies did not appear"
    raise AssertionError(message)


@pytest.mark.parametrize(
    ("parent", "zombies", "nproc", "is_fault"),
    [(HEALTHY_PARENT, 4, 1, False), (DEADLOCKED_PARENT, 1, 2, True)],
    ids=["false positive", "false negative"],
)
def test_r6_counting_zombies_fails_both_ways(parent: str, zombies: int, nproc: int, is_fault: bool) -> None:
    """R6, control: orphans' zombies fire it on a healthy launch, one dead worker under a stuck agent does not.

    Our rule, which looks at beats, is right in both.
    """
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        worker = int(output.readline())
    try:
        zombies_settle(process.pid, zombies)

        assert zombie_count_fires(process.pid, nproc) is not is_fault
    finally:
        process.kill()
        process.wait()
        os.kill(worker, signal.SIGKILL)
    ours = every_second(30, beats=7, running=1) if is_fault else every_second(30, running=1, started=1)
    assert (fires(ours) is not None) is is_fault
