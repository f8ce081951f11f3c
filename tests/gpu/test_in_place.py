"""Workers on NCCL that are never restarted: the experiment of ``ElasticGroup.start("nccl", experimental=True)``."""

from __future__ import annotations

import time

import pytest
import torch.distributed as dist

from tests.gpu import device as devices
from tests.gpu.conftest import QUICK, Start
from tests.launcher.loopback import Job, Line
from tests.launcher.scenarios.elastic_jobs import assert_as_undisturbed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.launcher,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="this torch cannot reconfigure a group"),
]

KEPT = 28.0
"""What every worker put on its device before it began, added up."""
FREED_SECONDS = 60.0
"""A survivor trains on by then: a tenth of NCCL's own timeout."""


def test_a_job_grows_in_the_same_process(start: Start) -> None:
    """One node becomes two. The first worker keeps its process and its device's context, and no step is repeated."""
    job = start(1, largest=2, in_place=True)
    first = job.journal()[-1]["pid"]
    job.start_node(*QUICK)
    lines = job.wait_for_world(2)

    assert pid_of(lines, 0) == first, job.logs()
    finish(job, {first})
    assert {line["restarts"] for line in job.journal()} == {0}
    assert len({(line["step"], line["rank"], line["pid"]) for line in steps(job)}) == len(steps(job)), "none twice"


def test_a_killed_rank_costs_its_peer_one_step_and_not_its_process(start: Start) -> None:
    """It is killed while gradients are exchanged: the peer's kernel that waits for it ends, and no garbage is trained.

    The peer trains on alone, and together with the killed worker's successor once that is built.
    """
    job = start(2, in_place=True, hang_timeout_seconds="off")
    lines = job.journal()
    survivor, victim = pid_of(lines, 0), pid_of(lines, 1)
    killed = time.monotonic()
    (job.folder / "victim").write_text(str(victim))
    lines = job.wait_for(lambda lines: any(is_after(line, killed, world=1) for line in lines), 180)
    freed = min(time_of(line) for line in lines if is_after(line, killed, world=1))
    assert freed - killed < FREED_SECONDS, job.logs()
    lines = job.wait_for_world(2, after=time_of(lines[-1]))

    assert pid_of(lines, 0) == survivor, job.logs()
    assert job.said("Workers go on in place") >= 1
    finish(job, {survivor})


def test_the_first_rank_is_killed(start: Start) -> None:
    """It serves the store in which the group was made; its peer becomes the first one, in the same process."""
    job = start(2, in_place=True, hang_timeout_seconds="off")
    lines = job.journal()
    victim, survivor = pid_of(lines, 0), pid_of(lines, 1)
    killed = time.monotonic()
    (job.folder / "victim").write_text(str(victim))
    lines = job.wait_for(lambda lines: any(is_after(line, killed, world=1) for line in lines), 180)
    lines = job.wait_for_world(2, after=time_of(lines[-1]))

    assert pid_of(lines, 0) == survivor, job.logs()
    finish(job, {survivor})


@pytest.mark.skipif(devices.chosen() == "cpu", reason="gloo is moved without the experiment")
def test_nothing_is_moved_without_the_experiment(start: Start) -> None:
    """By default workers on NCCL restart, and rank 0 says what would move them."""
    job = start(1)

    assert job.said("The backend nccl cannot be rebuilt in place without experimental=True.") == 1


def finish(job: Job, kept: set[object]) -> None:
    """Train to the end as fast as possible: weights are an undisturbed run's, and these workers live to see it."""
    (job.folder / "hurry").touch()

    assert [node.wait(300) for node in job.nodes] == [0] * len(job.nodes), job.logs()
    assert_as_undisturbed(job)
    left = {line["pid"]: line["kept"] for line in job.journal() if line["event"] == "left" and line["finished"]}
    assert {pid: left.get(pid) for pid in kept} == dict.fromkeys(kept, KEPT), "what is on the device is there"


def steps(job: Job) -> list[Line]:
    """What ranks have noted of their steps."""
    return [line for line in job.journal() if line["event"] == "step"]


def is_after(line: Line, moment: float, *, world: int) -> bool:
    """Whether a line is of a step in such a world after this moment."""
    return line["event"] == "step" and line["world"] == world and time_of(line) > moment


def pid_of(lines: list[Line], rank: int) -> object:
    """The process that had this rank last."""
    return next(line["pid"] for line in reversed(lines) if line["rank"] == rank and line["event"] == "step")


def time_of(line: Line) -> float:
    """When it was written: seconds by the machine's clock."""
    return float(str(line["time"]))
