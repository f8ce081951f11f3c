"""Membership and failures with eight workers a node, the shape that real nodes have."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest

from tests.launcher.loopback import TRAIN, Job, Line, kill_tree

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(600)]

WORKERS = 8
BEFORE_MEETING = -1
SCRIPTS = TRAIN.parent
QUICK = ("last_call_timeout=1", "join_timeout=120")
KINDS = ["cold", "warm"]


@pytest.fixture
def job(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    """Warm: the script imports torch at its top and meets by gloo. Cold: the standard library alone, by sockets."""
    kind = getattr(request, "param", "cold")
    options = ("--nproc-per-node", str(WORKERS), "--max-restarts", "0")
    job = Job(tmp_path, options=options)
    use(job, TRAIN, "sockets") if kind == "cold" else use(job, SCRIPTS / "torch_first.py", "gloo")
    job.environ = {"ELASTIC_INFRA_WARM_START": "0"} if kind == "cold" else {}
    yield job
    job.end()


def use(job: Job, script: pathlib.Path, backend: str) -> None:
    job.script = (str(script), str(job.folder), "100000", "0.05", backend)


def stop_at(job: Job, steps: int) -> None:
    job.script = (*job.script[:2], str(steps), *job.script[3:])


def allow_restarts(job: Job, number: int) -> None:
    job.options = (*job.options[:-1], str(number))


def fail_once(job: Job, *ranks: int, step: int) -> None:
    """Let these workers exit with 7 when they come to a step for the first time."""
    for rank in ranks:
        (job.folder / f"crash-{rank}-{step}").touch()


def since(moment: float, lines: list[Line]) -> list[Line]:
    return [line for line in lines if float(str(line["time"])) > moment]


def of(event: str, lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("job", KINDS, indirect=True)
@pytest.mark.parametrize("rank", [0, 5])
def test_a_worker_that_fails_at_its_start_costs_one_restart(job: Job, rank: int) -> None:
    """One ends while others are still being started: all eight are replaced once, and all finish."""
    allow_restarts(job, 1)
    stop_at(job, 20)
    fail_once(job, rank, step=BEFORE_MEETING)
    node = job.start_node(*QUICK)

    assert node.wait(300) == 0, job.logs()
    lines = job.journal()
    assert {line["restarts"] for line in lines} == {0, 1}
    assert sorted(int(str(line["rank"])) for line in of("finished", lines)) == list(range(WORKERS))


@pytest.mark.parametrize("job", KINDS, indirect=True)
def test_workers_that_fail_together_cost_one_restart(job: Job) -> None:
    """Half of the node's workers end at one step: one failure of one generation."""
    allow_restarts(job, 1)
    stop_at(job, 40)
    fail_once(job, 1, 3, 5, 7, step=20)
    node = job.start_node(*QUICK)

    assert node.wait(300) == 0, job.logs()
    assert {line["restarts"] for line in job.journal()} == {0, 1}


@pytest.mark.parametrize("job", KINDS, indirect=True)
def test_a_killed_worker_costs_one_restart(job: Job) -> None:
    """A signal from outside, in the middle of the training of two nodes."""
    allow_restarts(job, 1)
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    lines = job.wait_for_world(2 * WORKERS)
    killed = time.monotonic()
    os.kill(int(str(of("step", lines)[-1]["pid"])), signal.SIGKILL)
    lines = since(killed, job.wait_for_world(2 * WORKERS, killed + 0.5))

    assert max(int(str(line["restarts"])) for line in lines) == 1
    assert [node.poll() for node in job.nodes] == [None, None]


@pytest.mark.parametrize("job", KINDS, indirect=True)
def test_a_lost_node_costs_nothing(job: Job) -> None:
    """The eight remaining workers go on although no restart is allowed."""
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2 * WORKERS)
    killed = time.monotonic()
    kill_tree(job.nodes[0])
    lines = job.wait_for_world(WORKERS, killed)

    assert {line["restarts"] for line in lines} == {0}
    assert job.nodes[1].poll() is None


@pytest.mark.parametrize("job", KINDS, indirect=True)
def test_a_node_joins_at_one_step_and_leaves_at_one(job: Job) -> None:
    """Eight become sixteen and eight again: all stop at the same step each time, and no step is lost or repeated."""
    job.start_store()
    job.start_node(*QUICK)
    job.wait_for_world(WORKERS)
    job.start_node(*QUICK)
    job.wait_for_world(2 * WORKERS)
    told = time.monotonic()
    job.nodes[0].send_signal(signal.SIGTERM)
    assert job.nodes[0].wait(120) == 143
    lines = job.wait_for_world(WORKERS, told)

    stopped = {(line["generation"], line["step"]) for line in of("stopped", lines)}
    assert len(stopped) == len({generation for generation, _ in stopped}) == 2
    assert len(of("stopped", lines)) == 3 * WORKERS
    assert {line["restarts"] for line in lines} == {0}
    steps = [line["step"] for line in of("step", lines) if line["rank"] == 0]
    assert steps == list(range(len(steps)))


def test_a_script_that_sets_a_variable_first(job: Job) -> None:
    """Such a script starts, and restarts after a failure, as any other, though perhaps cold: both import torch."""
    job.options = ("--nproc-per-node", "2", "--max-restarts", "0")
    use(job, SCRIPTS / "variable_first.py", "gloo")
    job.environ = {}
    allow_restarts(job, 1)
    stop_at(job, 20)
    fail_once(job, 0, step=10)
    node = job.start_node(*QUICK)

    assert node.wait(400) == 0, job.logs()
    assert {line["restarts"] for line in job.journal()} == {0, 1}
