"""A sharded model that grows and shrinks while its workers keep their processes."""

from __future__ import annotations

import pathlib
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from tests.launcher.launched import kill
from tests.launcher.loopback import Job, Line, kill_tree
from tests.launcher.scenarios.elastic_jobs import QUICK, assert_none_twice, elastic_job, finish
from tests.launcher.scenarios.test_in_place import at, pid_of

pytestmark = [
    pytest.mark.launcher,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="FSDP2 of torch 2.6 cannot compute on the CPU"),
]
Start = Callable[[str], Job]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts the store of a job in a mode of ``elastic_loop.py``."""
    jobs: list[Job] = []

    def start(mode: str) -> Job:
        jobs.append(elastic_job(tmp_path, seconds=0.1, durable_steps=100, mode=mode, steps=600))
        jobs[0].nnodes = "1:4"
        jobs[0].start_store()
        return jobs[0]

    yield start
    for job in jobs:
        job.end()


def grow(job: Job, nodes: int) -> list[Line]:
    """Add one node after another; the pids of the older ones stay."""
    before: dict[int, object] = {}
    lines: list[Line] = []
    for world in range(len(job.nodes) + 1, nodes + 1):
        job.start_node(*QUICK)
        lines = job.wait_for_world(world)
        assert before == {rank: pid_of(lines, rank) for rank in before}, job.logs()
        before = {rank: pid_of(lines, rank) for rank in range(world)}
    return lines


def test_a_sharded_model_grows_and_a_node_leaves(start: Start) -> None:
    """FSDP2 on one, two, three, two nodes: no step is repeated, and the shards of the node that leaves are not lost."""
    job = start("rebuilt")
    lines = grow(job, 3)
    kept = {pid_of(lines, rank) for rank in (0, 1)}
    job.nodes[2].send_signal(signal.SIGTERM)
    lines = job.wait_for_world(2, after=at(lines[-1]))
    assert {pid_of(lines, rank) for rank in (0, 1)} == kept, job.logs()
    assert_none_twice(lines)

    finish(job)
    assert not job.said("is not used")


def test_a_killed_worker_of_three_has_its_shards_on_another_node(start: Start) -> None:
    """FSDP2: killed in backward. The others keep their processes and its shards, and repeat few steps."""
    job = start("rebuilt")
    lines = grow(job, 3)
    pids = [pid_of(lines, rank) for rank in range(3)]
    (job.folder / "building").write_text("3")
    (job.folder / "victim").write_text(str(pids[1]))
    lines = job.wait_for_world(2, after=at(lines[-1]))
    assert {pid_of(lines, rank) for rank in (0, 1)} == {pids[0], pids[2]}, job.logs()
    steps = [line for line in lines if line["event"] == "step"]
    broken = max(index for index, line in enumerate(steps) if line["world"] == 3)
    begun, again = (int(str(steps[index]["step"])) for index in (broken, broken + 1))
    assert begun - again <= 1, "a snapshot in memory was taken in every step"
    lines = job.wait_for_world(3, after=at(lines[-1]))
    assert {pids[0], pids[2]} < {pid_of(lines, rank) for rank in range(3)}, job.logs()

    finish(job)
    assert not job.said(", from disk.")


def test_a_node_is_lost_while_copies_are_on_their_way(start: Start) -> None:
    """FSDP2: training waits with the next snapshot for the copies of all. It goes on from the one before these."""
    job = start("rebuilt")
    lines = grow(job, 3)
    kept = {pid_of(lines, rank) for rank in (0, 1)}
    (job.folder / "away").touch()
    job.wait_until(lambda: time.monotonic() - at(job.journal()[-1]) > 1)
    before = job.journal()
    kill_tree(job.nodes[2])
    (job.folder / "away").unlink()
    lines = job.wait_for_world(2, after=at(before[-1]))
    assert {pid_of(lines, rank) for rank in (0, 1)} == kept, job.logs()
    newest = max(int(str(line["step"])) for line in before if line["event"] == "step")
    again = min(int(str(line["step"])) for line in lines[len(before) :] if line["event"] == "step")

    finish(job)
    assert newest - again <= 1, "the snapshot of the step before was whole"
    assert not job.said(", from disk.")


@pytest.mark.timeout(900)
def test_two_nodes_of_eight_workers(tmp_path: pathlib.Path) -> None:
    """FSDP2 over sixteen ranks, of which most have no row: a worker is killed, then a node lost.

    The siblings of the killed worker keep their processes too, and the other node's memory has the shards of all eight.
    """
    job = elastic_job(tmp_path, seconds=0.1, durable_steps=100, mode="rebuilt", steps=300)
    job.options = (*job.options, "--nproc-per-node", "8")
    try:
        job.start_store()
        for _ in range(2):
            job.start_node(*QUICK)
        lines = job.wait_for_world(16, seconds=300)
        before = {pid_of(lines, rank) for rank in range(16)}
        victim = int(str(pid_of(lines, 11)))
        kill([victim])
        lines = job.wait_for_world(16, after=at(lines[-1]), seconds=300)
        after = {pid_of(lines, rank) for rank in range(16)}
        assert after & before == before - {victim}, job.logs()
        kill_tree(job.nodes[1])
        lines = job.wait_for_world(8, after=at(lines[-1]), seconds=300)
        assert {pid_of(lines, rank) for rank in range(8)} < after, job.logs()

        finish(job)
        assert not job.said(", from disk.")
    finally:
        job.end()


def test_a_lost_node_of_two_has_copies_on_the_other(start: Start) -> None:
    """HSDP: the survivor keeps its process, goes on from memory, and is joined by a new node."""
    job = start("copied")
    lines = grow(job, 2)
    kept = pid_of(lines, 0)
    kill_tree(job.nodes[1])
    lines = job.wait_for_world(1, after=at(lines[-1]))
    job.start_node(*QUICK)
    lines = job.wait_for_world(2, after=at(lines[-1]))
    assert pid_of(lines, 0) == kept, job.logs()

    finish(job)
    assert not job.said("is not used")


def test_shards_without_a_living_copy_come_from_disk(start: Start) -> None:
    """Two of three nodes are lost at once: the third keeps its process, and says why it goes back."""
    job = start("rebuilt")
    lines = grow(job, 3)
    kept = pid_of(lines, 0)
    job.wait_for(lambda lines: any(line["event"] == "step" and line["step"] > 120 for line in lines))  # type: ignore[operator]  # a number
    for node in job.nodes[1:]:
        kill_tree(node)
    lines = job.wait_for_world(1, after=at(job.journal()[-1]))
    assert pid_of(lines, 0) == kept, job.logs()

    finish(job)
    assert job.said("a shard is in the memory of no present node") == 1
    assert job.said(", from disk.") == 1


@pytest.mark.parametrize(("mode", "leaving", "left"), [("rebuilt", (1, 2), 1), ("copied", (1, 3), 2)])
def test_copies_that_leave_at_once_lose_no_step(start: Start, mode: str, leaving: tuple[int, int], left: int) -> None:
    """Neighbours (FSDP2), or both nodes with the same shards (HSDP): these come from disk, at the agreed step."""
    job = start(mode)
    lines = grow(job, max(leaving) + 1)
    kept = pid_of(lines, 0)
    for node in leaving:
        job.nodes[node].send_signal(signal.SIGTERM)
    lines = job.wait_for_world(left, after=at(job.journal()[-1]))
    assert pid_of(lines, 0) == kept, job.logs()
    assert_none_twice(lines)

    finish(job)
