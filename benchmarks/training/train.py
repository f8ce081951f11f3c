"""What this launcher's arms train: a model on gloo with Adam, and a journal of the steps that are done.

Usage: train.py FOLDER MEGABYTES [sharded-]in-place|restart [SNAPSHOTS]. The model is DistributedDataParallel, or FSDP2
that is built for each group; in place and restart differ in the group alone. SNAPSHOTS is the number of steps between
two snapshots in memory, or ``default``. The journal's path is in the environment; it holds a line for each step of each
worker once the step counts, its snapshot included, timed by CLOCK_MONOTONIC, which all processes of a machine share. It
runs until it is ended.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.training import journal, labels, model
from benchmarks.training.labels import SNAPSHOT_STEPS
from elastic_infra.training import Elastic, ElasticGroup, ElasticState, Snapshots

STEP_SECONDS = 0.05
"""Computation that every step stands for, so that the smallest steps are no mere overhead."""
ENDLESS = 10**9


def sharded(megabytes: int) -> dict[str, Any]:
    """The model over the present group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network, mesh = model.network(megabytes), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in network:
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return {"model": network, "optimizer": model.optimizer(network)}


def main(folder: Path, megabytes: int, arm: str, snapshots: str = str(SNAPSHOT_STEPS)) -> None:
    """Train until this process is killed."""
    torch.set_num_threads(1)
    group = ElasticGroup.start() if arm.endswith("in-place") else None
    if group is None:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    if arm.startswith("sharded"):
        state = ElasticState(folder / "checkpoints", build=partial(sharded, megabytes))
    else:
        network = DistributedDataParallel(model.network(megabytes))
        state = ElasticState(folder / "checkpoints", model=network, optimizer=model.optimizer(network))
    memory_steps = None if snapshots == labels.DEFAULT else int(snapshots)
    elastic = Elastic(state, snapshots=Snapshots(memory_steps=memory_steps, durable_steps=ENDLESS), group=group)
    for step, _ in elastic.steps(ENDLESS):
        with elastic.step():
            model.loss(state.model).backward()
            state.optimizer.step()
            state.optimizer.zero_grad()
            time.sleep(STEP_SECONDS)
            worked = time.monotonic()
        if state.step == step:
            generation = group.generation if group else int(os.environ["ELASTIC_INFRA_GENERATION"])
            journal.note(step, dist.get_rank(), dist.get_world_size(), generation, time.monotonic() - worked)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
