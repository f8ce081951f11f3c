"""What every arm trains: a small model under DistributedDataParallel on gloo, a step of 0.1 s, checkpoints, a journal.

Usage: train.py CHECKPOINT. The journal's path is in the environment; it holds a line for each step of each worker,
timed by CLOCK_MONOTONIC, which all processes of a machine share. It runs until it is ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from elastic_infra.training import Progress

STEP_SECONDS = 0.1
CHECKPOINT_STEPS = 10
WIDTH = 64


def main(checkpoint: Path) -> None:
    """Train from the checkpoint on."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)))
    optimizer = torch.optim.AdamW(model.parameters())
    step = load(checkpoint, model, optimizer)
    progress = Progress()
    while True:
        step += 1
        optimizer.zero_grad()
        model(torch.randn(8, WIDTH)).square().mean().backward()
        optimizer.step()
        time.sleep(STEP_SECONDS)
        journal(step)
        stop = progress.step(step)
        if stop or step % CHECKPOINT_STEPS == 0:
            save(checkpoint, model, optimizer, step)
            progress.checkpoint(step)
        if stop:
            break
    dist.destroy_process_group()


def load(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step of the checkpoint, 0 without one."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Rank 0 writes, atomically."""
    if dist.get_rank() != 0:
        return
    temporary = checkpoint.with_suffix(f".{os.getpid()}")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, temporary)
    temporary.rename(checkpoint)


def journal(step: int) -> None:
    """Append one line; short appends are atomic."""
    line = {
        "event": "step",
        "step": step,
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "pid": os.getpid(),
        "time": time.monotonic(),
    }
    with Path(os.environ["JOURNAL"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
