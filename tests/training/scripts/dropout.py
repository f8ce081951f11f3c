"""One worker of a node, whose sharded model draws for dropout: dropout.py FOLDER NAME STEPS.

With torchrun's variables and the launcher's folder of the node. It goes on from the newest state up to STEPS. Rank 0
writes the whole weights to FOLDER/NAME.pt.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from elastic_infra.training import ElasticState

folder, name, steps = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")


def build() -> dict[str, Any]:
    """Two layers with dropout between them."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


torch.manual_seed(3)
state = ElasticState(None, build=build)
restored = state.restore()
if not restored.step:
    torch.manual_seed(dist.get_rank())
while state.step < steps:
    state.model(torch.ones(3, 4)).square().mean().backward()
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.step += 1
state.hand_over(durable=False)
weights = {
    key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in state.model.state_dict().items()
}
if dist.get_rank() == 0:
    torch.save({"restored": [restored.step, restored.source], "weights": weights}, folder / f"{name}.pt")
dist.barrier()
dist.destroy_process_group()
