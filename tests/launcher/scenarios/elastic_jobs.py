"""Jobs that train with ``Elastic``, and the proof that each of their samples counted once."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import cast

import torch

from elastic_infra.training.sampler import ElasticSampler
from tests.launcher.loopback import Job, Line
from tests.training.recorded_step import one_layer, two_layers

SCRIPT = pathlib.Path(__file__).parents[1] / "scripts" / "elastic_loop.py"
QUICK = ("last_call_timeout=1", "join_timeout=120")
STEPS = 1500


def elastic_job(folder: pathlib.Path, *, seconds: float, durable_steps: int, mode: str = "", steps: int = STEPS) -> Job:
    """A job of the script ``elastic_loop.py``.

    Args:
        folder: of the job's files.
        seconds: that a step takes until the folder has a file ``hurry``.
        durable_steps: between two snapshots on disk.
        mode: ``in-place``: workers keep their processes when nodes come and go; ``reconfigured``: and their process
            group; ``sharded``: the model is sharded; ``rebuilt`` and ``copied``: workers keep their processes, and
            build a sharded model of two layers for each group (FSDP2 and HSDP); ``streamed``: workers keep their
            processes, and read a stream.
        steps: of the whole training.
    """
    script = (
        str(SCRIPT),
        str(folder),
        str(steps),
        str(seconds),
        str(durable_steps),
        *([mode] if mode else []),
    )
    return Job(folder, script=script, options=("--max-restarts", "3"))


def finish(job: Job) -> None:
    """Train to the end: every sample counted once, and the weights are those of one worker."""
    (job.folder / "hurry").touch()
    assert job.nodes[0].wait(200) == 0, job.logs()
    assert_as_undisturbed(job)


def assert_as_undisturbed(job: Job) -> None:
    """Every sample was trained on exactly once, and the weights are those of one worker that is never disturbed."""
    steps = int(job.script[2])
    assert_exactly_once([line for line in job.journal() if line["event"] == "step"], steps)
    weights = json.loads((job.folder / "weights.json").read_text())
    expected = undisturbed(*((one_layer, 0.05) if len(weights) == 2 else (two_layers, 0.01)), steps)
    for found, parameter in zip(weights, expected.parameters(), strict=True):
        assert torch.allclose(torch.tensor(found, dtype=torch.float64), parameter, atol=1e-12, rtol=0)


def undisturbed(build: Callable[[], torch.nn.Module], rate: float, steps: int) -> torch.nn.Module:
    """The model of one worker that is never disturbed."""
    torch.manual_seed(0)
    inputs = torch.randn(50, 4, dtype=torch.float64)
    targets = inputs.sum(1, keepdim=True)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    sampler = ElasticSampler(50, global_batch=12)
    for _ in range(steps):
        batch = list(sampler.step(0, 1)[0].indices)
        torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
        sampler.advance()
    return model


def assert_exactly_once(lines: list[Line], steps: int) -> None:
    """The ranks of the last generation that made a step had its samples, each once."""
    sampler = ElasticSampler(50, global_batch=12)
    for step in range(1, steps + 1):
        times = [line for line in lines if line["step"] == step]
        last = times[-1]["generation"]
        seen = [index for line in times if line["generation"] == last for index in cast("list[int]", line["seen"])]
        assert sorted(seen) == sorted(sampler.step(0, 1)[0].indices), f"step {step}"
        sampler.advance()


def assert_none_twice(lines: list[Line]) -> None:
    """A planned change repeats no step."""
    steps = [(line["step"], line["rank"]) for line in lines if line["event"] == "step"]
    assert len(steps) == len(set(steps)), "a planned change repeats no step"
