"""One rank of a model that is sharded with ``fully_shard``: sharded.py FOLDER RANK MESH ACTION...

MESH is ``3`` for FSDP2 over three ranks and ``2x3`` for HSDP with two copies of three shards. Actions: ``restore``;
``train=N``; ``memory`` and ``disk`` take a snapshot; ``write=NAME`` writes the whole tensors to FOLDER/NAME.pt. At the
end the file FOLDER/RANK.json says where the state came from, the step, and this rank's next random number.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from elastic_infra.training import ElasticState

folder, rank, sizes = pathlib.Path(sys.argv[1]), int(sys.argv[2]), [int(size) for size in sys.argv[3].split("x")]
torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=("copies", "shards")[-len(sizes) :])
torch.manual_seed(int(os.environ["ELASTIC_INFRA_ATTEMPT"]))  # new initial weights at each start, which must not count
# Neither 5 nor 7 rows can be cut into equal parts, and a rank of four has none of the last layer's three.
model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
torch.manual_seed(rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, best=0.0)
source = ""


def train() -> None:
    """Do a step with this rank's own random samples."""
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    state.step += 1
    state.best = float(state.step)


def whole() -> dict[str, torch.Tensor]:
    """Every tensor of model and optimizer, put together from all ranks."""
    found = dict(model.state_dict())
    for index, values in optimizer.state_dict()["state"].items():
        found |= {f"{index}.{name}": tensor for name, tensor in values.items()}
    return {name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for name, tensor in found.items()}


for action in sys.argv[4:]:
    what, _, value = action.partition("=")
    if what == "restore":
        source = state.restore().source
    elif what == "train":
        for _step in range(int(value)):
            train()
    elif what == "write":
        tensors = whole()
        if rank == 0:
            torch.save(tensors, folder / f"{value}.pt")
    else:
        state.snapshot(durable=what == "disk")
        state.wait()
        dist.barrier()  # rank 0's snapshot is whole
line = {"source": source, "step": state.step, "best": state.best, "random": torch.rand(1).item()}
(folder / f"{rank}.json").write_text(json.dumps(line))
dist.destroy_process_group()
