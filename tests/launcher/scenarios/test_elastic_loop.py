"""A job that trains with ``Elastic`` while nodes come, leave and are lost, and a worker is killed."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest
import torch

from tests.launcher.loopback import Job, kill_tree
from tests.launcher.scenarios.elastic_jobs import QUICK, assert_as_undisturbed, elastic_job

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

DRAWS = pathlib.Path(__file__).parents[1] / "scripts" / "draws.py"


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Iterator[Job]:
    job = elastic_job(tmp_path, seconds=0.2, durable_steps=20)
    job.environ["ELASTIC_INFRA_EVENTS"] = str(tmp_path / "events")
    yield job
    job.end()


@pytest.mark.slow
def test_snapshots_by_time_are_whole_on_all_ranks(tmp_path: pathlib.Path) -> None:
    """The clocks of the two nodes reach each half second in different steps."""
    job = elastic_job(tmp_path, seconds=0.05, durable_steps=0)
    job.start_store()
    try:
        for _ in range(2):
            job.start_node(*QUICK)
        job.wait_for_world(2)
        manifests = tmp_path / "checkpoints"
        found: set[str] = set()

        def five_are_whole() -> bool:
            for path in manifests.glob("step-*/manifest.json"):
                if json.loads(path.read_text())["world"] == 2:
                    found.add(path.parent.name)
            return len(found) >= 5

        job.wait_until(five_are_whole, 60)
    finally:
        job.end()

    assert "cannot be saved" not in job.logs()


def test_every_sample_once_and_the_weights_of_an_undisturbed_run(job: Job) -> None:
    """One node, two, a killed worker, a lost node: samples, batches and weights are one worker's.

    The second node has no copy of the state, and takes the one in the first node's memory.
    """
    job.start_store()
    job.start_node(*QUICK)
    job.wait_for_world(1)
    job.start_node(*QUICK)
    job.wait_for_world(2)
    os.kill(int(str(job.journal()[-1]["pid"])), signal.SIGKILL)
    job.wait_for(lambda lines: len({line["pid"] for line in lines}) >= 5)
    kill_tree(job.nodes[1])
    job.wait_for_world(1)
    (job.folder / "hurry").touch()

    assert job.nodes[0].wait(200) == 0, job.logs()
    assert_as_undisturbed(job)
    assert "memory" in [line["restored"] for line in job.journal() if line["event"] == "left"]
    events = [json.loads(line) for line in (job.folder / "events").read_text().splitlines()]
    restores = [event for event in events if event["event"] == "state_restored"]
    assert sorted((event["generation"], event["source"]) for event in restores[:3]) == [
        (1, "nothing"),
        (2, "memory"),
        (2, "peer"),
    ]
    progress = [event for event in events if event["event"] == "progress"]
    assert max(event["samples"] or 0 for event in progress) > 1000
    assert max(event["memory_step"] or 0 for event in progress) > 0
    assert all(event["first_age_seconds"] >= event["age_seconds"] for event in progress)


@pytest.mark.slow
def test_a_replaced_node_draws_what_the_lost_one_would_have(tmp_path: pathlib.Path) -> None:
    """Two nodes of two workers; one is lost with its memory, and has no disk: all four ranks go on to the bit.

    They read a ``DataLoader``, whose ``iter`` draws anew in each generation.
    """
    steps, workers = 12, ("--nproc-per-node", "2", "--max-restarts", "3")
    job = Job(tmp_path, "2", workers, (str(DRAWS), str(tmp_path), str(steps)))
    job.start_store()
    try:
        for _ in range(2):
            job.start_node(*QUICK)
        job.wait_for(lambda lines: sum(line["step"] == 5 for line in lines) == 4)
        time.sleep(0.3)  # the copies of the step before are on the other node long before this step's second is over
        kill_tree(job.nodes[1])
        job.start_node(*QUICK)
        job.wait_for(lambda lines: any(line["source"] == "peer" for line in lines))
        (tmp_path / "hurry").touch()
        assert [job.nodes[node].wait(120) for node in (0, 2)] == [0, 0], job.logs()
    finally:
        job.end()

    lines = job.journal()
    assert "nothing" not in {line["source"] for line in lines if line["generation"] == lines[-1]["generation"]}
    for rank in range(4):
        torch.manual_seed(rank)
        expected = {step: torch.rand(1).item() for step in range(1, steps + 1)}
        assert {line["step"]: line["draw"] for line in lines if line["rank"] == rank} == expected


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="FSDP2 of torch 2.6 cannot compute on the CPU")
def test_a_sharded_model_loses_no_shard_with_a_node(tmp_path: pathlib.Path) -> None:
    """Two nodes become three; of these the one without a shard is lost, then the one with the weight.

    Workers start anew, and find a copy of the weight in the memory of another node: nothing is read from disk. Samples
    and weights are those of one worker with the whole model.
    """
    job = elastic_job(tmp_path, seconds=0.2, durable_steps=1000, mode="sharded")
    job.environ["ELASTIC_INFRA_EVENTS"] = str(tmp_path / "events")
    job.start_store()
    try:
        for world in (1, 2, 3):
            job.start_node(*QUICK)
            job.wait_for_world(world)
        for lost, world in ((2, 2), (0, 1)):
            after = float(str(job.journal()[-1]["time"]))
            kill_tree(job.nodes[lost])
            job.wait_for_world(world, after=after)
        (job.folder / "hurry").touch()

        assert job.nodes[1].wait(200) == 0, job.logs()
    finally:
        job.end()
    assert_as_undisturbed(job)
    assert job.said("The model is sharded, and cannot leave the group in which it was built.") >= 1
    events = [json.loads(line) for line in (job.folder / "events").read_text().splitlines()]
    sources = {(event["generation"], event["source"]) for event in events if event["event"] == "state_restored"}
    assert {source for at, source in sources if at in {4, 5}} <= {"memory", "peer"}
    assert {at for at, _ in sources} >= {4, 5}
