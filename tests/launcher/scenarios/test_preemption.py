"""A node is told to leave: its workers call the script's function before they end, and those of other nodes do not."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.launcher.loopback import Job, tree
from tests.launcher.scenarios.elastic_jobs import QUICK, assert_as_undisturbed, elastic_job

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]


@pytest.fixture(params=["in-place", pytest.param("", marks=pytest.mark.slow)])
def job(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    """A job whose workers keep their processes, or are started again."""
    job = elastic_job(tmp_path, seconds=0.1, durable_steps=100, mode=request.param, steps=300)
    job.options = (*job.options, "--nproc-per-node", "2")
    yield job
    job.end()


def test_the_workers_of_the_node_that_leaves_call_the_function(job: Job) -> None:
    """Each of its ranks once, after its last step and before it leaves the loop; training goes on elsewhere."""
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    lines = job.wait_for_world(4)
    workers = {line["pid"] for line in lines if line["event"] == "step" and line["world"] == 4}
    left, stays = job.nodes
    leaving = workers & set(tree(left.pid))
    left.terminate()

    assert left.wait(60) == 143, job.logs()
    (job.folder / "hurry").touch()
    assert stays.wait(200) == 0, job.logs()
    assert len(leaving) == 2
    for pid in leaving:
        events = [line["event"] for line in job.journal() if line["pid"] == pid]
        assert events[-2:] == ["preempted", "left"], job.logs()
    assert {line["pid"] for line in job.journal() if line["event"] == "preempted"} == leaving
    assert_as_undisturbed(job)
