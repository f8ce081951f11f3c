"""What every arm trains: a model with DistributedDataParallel on a device, and how long each part of its start took.

Usage: train.py CHECKPOINT; TEST_DEVICE, JOURNAL and PHASES are in the environment. A line of the journal is a step of a
worker, a line of PHASES its start; both are in seconds, the journal's by CLOCK_MONOTONIC. It runs until it is ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.launcher.train import CHECKPOINT_STEPS, STEP_SECONDS, journal, load, save
from elastic_infra.training import Progress
from tests.gpu.device import BACKENDS, chosen, settle, take

WIDTH: Final = 2048
"""Of two layers: some 100 MB with the gradients and Adam's moments."""


def main(checkpoint: Path) -> None:
    """Train from the checkpoint on."""
    device, phases = meet()
    met = time.monotonic()
    network = DistributedDataParallel(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(device)
    )
    optimizer = torch.optim.AdamW(network.parameters())
    first = step = load(checkpoint, network, optimizer)
    progress = Progress()
    while True:
        step += 1
        optimizer.zero_grad()
        network(torch.randn(8, WIDTH, device=device)).square().mean().backward()
        optimizer.step()
        settle(device)
        if step == first + 1:
            note({**phases, "model and first step": time.monotonic() - met})
        time.sleep(STEP_SECONDS)
        journal(step)
        stop = progress.step(step)
        if stop or step % CHECKPOINT_STEPS == 0:
            save(checkpoint, network, optimizer, step)
            progress.checkpoint(step)
        if stop:
            break
    dist.destroy_process_group()


def meet() -> tuple[torch.device, dict[str, float]]:
    """This worker's device, once all ranks have a group, and the time that each took."""
    begin = time.monotonic()
    device = take(chosen())
    count = torch.ones(1, device=device)
    settle(device)
    context = time.monotonic()
    dist.init_process_group(BACKENDS[chosen()][0])
    dist.all_reduce(count)
    settle(device)
    return device, {"context": context - begin, "group": time.monotonic() - context}


def note(phases: dict[str, float]) -> None:
    """Append this worker's start."""
    with Path(os.environ["PHASES"]).open("a") as file:
        file.write(json.dumps(phases) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
