"""The Python blocks of the page about training run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from elastic_infra.training import Elastic, ElasticGroup, ElasticIterable, ElasticSampler, ElasticState

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
LOOP, PHASE, GROUP, SHARDED, REBUILT, STREAM = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def net() -> torch.nn.Module:
    """A model that a script has."""
    return torch.nn.Linear(1, 1)


def test_the_loop_in_ten_lines(tmp_path: Path) -> None:
    """Three steps of the ten thousand train the model, which is then exported."""
    model, exported = net(), list[torch.nn.Module]()
    before = [each.detach().clone() for each in model.parameters()]
    run(
        LOOP.replace("10_000", "3").replace("/checkpoints", str(tmp_path)),
        dataset=TensorDataset(torch.ones(2048, 1), torch.zeros(2048, 1)),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=torch.nn.functional.mse_loss,
        export=exported.append,
    )

    assert exported == [model]
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_a_stream_without_indices(tmp_path: Path) -> None:
    """Its loop has the batches, here read without workers."""
    found = run(
        STREAM.replace("/checkpoints", str(tmp_path)).replace("num_workers=4", "num_workers=0"),
        lines=range(40),
        model=net(),
        optimizer=None,
    )

    for _, micro in found["elastic"].steps(1):
        with found["elastic"].step():
            assert [batch.tolist() for batch, _ in micro] == [[*range(20)], [*range(20, 40)]]


def test_the_phase_before_the_steps(tmp_path: Path) -> None:
    """Its work is done, and the loop still stands."""
    found = run(PHASE, elastic=Elastic(ElasticState(tmp_path, step_count=0)), read=len, path="data")

    assert found["dataset"] == 4


def test_the_group_in_place_of_init_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one member until the steps begin, and the loop takes it."""
    monkeypatch.delenv("RANK", raising=False)
    try:
        found = run(GROUP, Net=net, state=ElasticState(tmp_path, step_count=0), loader=())
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        assert isinstance(found["elastic"], Elastic)
    finally:
        dist.destroy_process_group()


def test_a_sharded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU instead of GPUs: the state that the loop takes knows that its model is sharded."""
    monkeypatch.delenv("RANK", raising=False)
    model = torch.nn.Module()
    model.blocks = torch.nn.ModuleList([net(), net()])
    code = SHARDED.replace("nccl", "gloo").replace("cuda", "cpu").replace("/checkpoints", str(tmp_path))
    try:
        sampler, names = ElasticSampler(4, global_batch=2), {"fully_shard": fully_shard, "dist": dist, "torch": torch}
        found = run(code, model=model, sampler=sampler, dataset=[0] * 4, init_device_mesh=init_device_mesh, **names)
        assert found["elastic"].state.is_sharded
    finally:
        dist.destroy_process_group()


def test_a_sharded_model_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state builds the model in the group that it is restored in."""
    monkeypatch.delenv("RANK", raising=False)

    def blocks() -> torch.nn.Module:
        model = torch.nn.Module()
        model.blocks = torch.nn.ModuleList([net(), net()])
        return model

    try:
        names = {"fully_shard": fully_shard, "dist": dist, "torch": torch, "init_device_mesh": init_device_mesh}
        given = {"sampler": ElasticSampler(4, global_batch=2), "dataset": [0] * 4, "Net": blocks}
        found = run(REBUILT.replace("/checkpoints", str(tmp_path)), **given, **names)
        assert found["state"].restore().source == "nothing"
        assert found["state"].is_sharded
    finally:
        dist.destroy_process_group()


def run(code: str, **given: Any) -> dict[str, Any]:
    """Execute a block with the library's names, and those that its script has."""
    names = {
        each.__name__: each
        for each in (
            *(DataLoader, DistributedDataParallel),
            *(Elastic, ElasticGroup, ElasticIterable, ElasticSampler, ElasticState),
        )
    }
    space = {**names, **given}
    exec(code, space)
    return space
