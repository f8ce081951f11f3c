"""A job that trains with ``Elastic`` while nodes come, leave and are lost, and a worker is killed."""

from __future__ import annotations

import json
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import cast

import pytest
import torch

from elastic_infra.training.sampler import ElasticSampler
from tests.launcher.loopback import Job, Line, kill_tree

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

SCRIPT = pathlib.Path(__file__).parents[1] / "scripts" / "elastic_loop.py"
QUICK = ("last_call_timeout=1", "join_timeout=120")
STEPS = 1500


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Iterator[Job]:
    job = Job(tmp_path, script=(str(SCRIPT), str(tmp_path), str(STEPS), "0.2"), options=("--max-restarts", "3"))
    yield job
    job.end()


def undisturbed() -> list[list[list[float]] | list[float]]:
    """The weights of one worker that is never disturbed."""
    torch.manual_seed(0)
    inputs = torch.randn(50, 4, dtype=torch.float64)
    targets = inputs.sum(1, keepdim=True)
    model = torch.nn.Linear(4, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = ElasticSampler(50, global_batch=12)
    for _ in range(STEPS):
        batch = list(sampler.step(0, 1)[0].indices)
        torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
        sampler.advance()
    return [model.weight.tolist(), model.bias.tolist()]


def test_every_sample_once_and_the_weights_of_an_undisturbed_run(job: Job) -> None:
    """One node, two, a killed worker, a lost node, two again: samples, batches and weights are one worker's."""
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
    lines = job.journal()
    assert_exactly_once([line for line in lines if line["event"] == "step"])
    weights, bias = json.loads((job.folder / "weights.json").read_text())
    expected = undisturbed()
    assert torch.allclose(torch.tensor(weights), torch.tensor(expected[0]), atol=1e-12, rtol=0)
    assert torch.allclose(torch.tensor(bias), torch.tensor(expected[1]), atol=1e-12, rtol=0)
    assert "memory" in [line["restored"] for line in lines if line["event"] == "left"]


def assert_exactly_once(lines: list[Line]) -> None:
    """The last time that a step was done, its ranks had its samples, each once."""
    sampler = ElasticSampler(50, global_batch=12)
    for step in range(1, STEPS + 1):
        times = [line for line in lines if line["step"] == step]
        last = times[-1]["generation"]
        seen = [index for line in times if line["generation"] == last for index in cast("list[int]", line["seen"])]
        assert sorted(seen) == sorted(sampler.step(0, 1)[0].indices), f"step {step}"
        sampler.advance()
