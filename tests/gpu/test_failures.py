"""A rank that stands still, or is killed, in a job on GPUs: the others are freed, and the job goes on."""

from __future__ import annotations

import json
import time

import pytest

from tests.gpu.conftest import Start
from tests.launcher.loopback import Job, Line
from tests.launcher.scenarios.elastic_jobs import assert_as_undisturbed

pytestmark = [pytest.mark.gpu, pytest.mark.launcher, pytest.mark.timeout(600)]

HANG_SECONDS = 10
TORCHS_SECONDS = 20
TORCHS_DUMP_SECONDS = 60
"""Torch waits for so long before it ends a worker whose collective timed out: its flight recorder is to be written."""
FREED_SECONDS = 60.0
"""A survivor is in its next generation by then: a tenth of NCCL's own timeout, with torch's import."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_stands_still_is_named_and_the_job_goes_on(start: Start, ranks: int) -> None:
    """It stands in a kernel that never ends; its peer is a step ahead and waits in NCCL. One restart is charged."""
    job = start(ranks, hang_timeout_seconds=str(HANG_SECONDS))
    last = ranks - 1
    strike(job, "standing", rank=last)
    await_next_generation(job, ranks)

    named = f"Rank {last} on 127.0.0.1 is furthest behind" if ranks > 1 else "Local rank 0 has reported no step"
    assert reason_of_the_restart(job, "hang").startswith(named)
    assert job.said("in stand_still") > 0, "the stack of the rank shows where it stands"
    finish(job)
    assert {line["restarts"] for line in job.journal()} == {0, 1}
    assert_as_undisturbed(job)


@pytest.mark.parametrize("handling", [1, 3])
def test_a_killed_rank_leaves_no_survivor_hanging(start: Start, handling: int) -> None:
    """Whichever way torch handles errors of NCCL, the launcher ends the survivor, and names the signal as the cause."""
    job = start(2, nccl_async_error_handling=str(handling), hang_timeout_seconds="off")
    killed = time.monotonic()
    strike(job, "victim", rank=1)
    lines = await_next_generation(job, 2)

    begun = min(time_of(line) for line in lines if line["restarts"] == 1)
    assert begun - killed < FREED_SECONDS, job.logs()
    assert reason_of_the_restart(job, "worker_failed").startswith("Rank 1 was killed by SIGKILL.")
    finish(job)
    assert_as_undisturbed(job)


def test_torchs_own_timeout_ends_a_hang_that_the_launcher_is_not_to_see(start: Start) -> None:
    """The rank that waits ends first, and its own collective is the cause; the one that stands is ended after it."""
    job = start(
        2, nccl_collective_timeout_seconds=str(TORCHS_SECONDS), hang_timeout_seconds="off", shutdown_grace_seconds="5"
    )
    stood = time.monotonic()
    strike(job, "standing", rank=1)
    lines = await_next_generation(job, 2)

    begun = min(time_of(line) for line in lines if line["restarts"] == 1)
    assert TORCHS_SECONDS <= begun - stood < TORCHS_SECONDS + TORCHS_DUMP_SECONDS + FREED_SECONDS, job.logs()
    assert reason_of_the_restart(job, "worker_failed").startswith("Rank 0 ")
    finish(job)
    assert_as_undisturbed(job)


def test_the_launchers_timeout_comes_first_where_it_is_shorter(start: Start) -> None:
    """Torch would wait for 15 minutes: a hang of seconds is found by the launcher, with the rank that stands."""
    job = start(2, hang_timeout_seconds=str(HANG_SECONDS), nccl_collective_timeout_seconds="900")
    stood = time.monotonic()
    strike(job, "standing", rank=0)
    lines = await_next_generation(job, 2)

    begun = min(time_of(line) for line in lines if line["restarts"] == 1)
    assert begun - stood < HANG_SECONDS + FREED_SECONDS, job.logs()
    assert reason_of_the_restart(job, "hang").startswith("Rank 0 on 127.0.0.1 is furthest behind")


def strike(job: Job, fault: str, *, rank: int) -> None:
    """Have the worker with this rank fail in its next step."""
    (job.folder / fault).write_text(str(next(line["pid"] for line in reversed(job.journal()) if line["rank"] == rank)))


def await_next_generation(job: Job, world: int) -> list[Line]:
    """Wait until all ranks have made steps after one restart."""
    return job.wait_for(
        lambda lines: (
            {line["rank"] for line in lines if line["event"] == "step" and line["restarts"] == 1} == set(range(world))
        ),
        180,
    )


def reason_of_the_restart(job: Job, cause: str) -> str:
    """The message of the launcher that knows the cause: of one that lost its workers to it the message is a peer's."""
    lines = [json.loads(line) for line in (job.folder / "events").read_text().splitlines()]
    found = {line["cause"]: line["message"] for line in lines if line["event"] == "restart"}
    assert list(found) == [cause], job.logs()
    return str(found[cause])


def finish(job: Job) -> None:
    """Train to the end as fast as possible."""
    (job.folder / "hurry").touch()
    assert [node.wait(300) for node in job.nodes] == [0] * len(job.nodes), job.logs()


def time_of(line: Line) -> float:
    """When it was written: seconds by the machine's clock."""
    return float(str(line["time"]))
