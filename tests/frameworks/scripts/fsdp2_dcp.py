"""FSDP2, with checkpoints by torch.distributed.checkpoint that any number of workers can read."""

import argparse
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from slow_storage import WIDTH, Points
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class State(Stateful):
    """All that a checkpoint holds."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]


def save(state, output):
    """Every rank writes its part; the folder has its name only once all are there."""
    folder = output / f"step-{state.step}"
    temporary = output / f"incomplete-{state.step}"
    if dist.get_rank() == 0:
        shutil.rmtree(temporary, ignore_errors=True)
    dist.barrier()
    dcp.save({"state": state}, checkpoint_id=temporary)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(temporary, folder)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 2))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    state = State(model, optimizer)
    options.output.mkdir(parents=True, exist_ok=True)
    saved = sorted(options.output.glob("step-*"), key=lambda folder: int(folder.name.removeprefix("step-")))
    if saved:
        dcp.load({"state": state}, checkpoint_id=saved[-1])
    if dist.get_rank() == 0:
        print(f"resuming from step {state.step}" if saved else "starting afresh")
    data = Points()
    for points, sides in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
        loss = nn.functional.cross_entropy(model(points), sides)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        state.step += 1
        if state.step % 5 == 0:
            save(state, options.output)
        if state.step >= options.steps:
            break
    if dist.get_rank() == 0:
        print(f"finished at step {state.step}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
