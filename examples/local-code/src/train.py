"""Fits a line, and goes on where it stopped. The package `line` lies beside this file."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from line import model, points
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from elastic_infra.training import Progress  # comes with the launcher

CHECKPOINT = Path(os.environ.get("ELASTIC_INFRA_CHECKPOINT_DIR", "checkpoints"), "line.pt")


def main() -> None:
    """Train, and save after every tenth step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    steps = parser.parse_args().steps
    dist.init_process_group("gloo")
    line = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(line.parameters(), lr=0.5)
    found = [torch.load(CHECKPOINT) if dist.get_rank() == 0 and CHECKPOINT.exists() else None]
    dist.broadcast_object_list(found)
    state = found[0] or {"step": 0, "line": line.state_dict()}
    line.load_state_dict(state["line"])
    progress = Progress()
    for step in range(state["step"], steps):
        x, y = points(dist.get_rank(), step)
        optimizer.zero_grad()
        nn.functional.mse_loss(line(x), y).backward()
        optimizer.step()
        progress.step(step + 1)
        if progress.stopped or (step + 1) % 10 == 0:
            save({"step": step + 1, "line": line.state_dict()})
            progress.checkpoint(step + 1)
        if progress.stopped:
            break
    if dist.get_rank() == 0 and not progress.stopped:
        print("slope and offset:", [round(float(each), 2) for each in line.parameters()], flush=True)
    dist.barrier()
    dist.destroy_process_group()


def save(state: dict[str, object]) -> None:
    """Write the checkpoint whole or not at all."""
    if dist.get_rank() == 0:
        CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
        draft = CHECKPOINT.with_suffix(".draft")
        torch.save(state, draft)
        draft.replace(CHECKPOINT)
    dist.barrier()


if __name__ == "__main__":
    main()
