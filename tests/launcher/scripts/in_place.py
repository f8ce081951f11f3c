"""Trains in a group that is rebuilt in place and writes what every step had: in_place.py FOLDER STEPS SECONDS.

A step takes SECONDS until FOLDER has a file ``hurry``. A worker whose pid is in FOLDER/victim kills itself while the
gradients of its next step are under way.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from elastic_infra.training import Elastic, ElasticGroup, ElasticSampler, ElasticState, Snapshots

folder, until, pause = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
group = ElasticGroup.start()

torch.manual_seed(0)
inputs = torch.randn(50, 4, dtype=torch.float64)
dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True), torch.arange(50))
model = DistributedDataParallel(torch.nn.Linear(4, 1, dtype=torch.float64), bucket_cap_mb=0.00001)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, data=sampler)
elastic = Elastic(state, DataLoader(dataset, batch_sampler=sampler), Snapshots(durable_steps=100), group=group)


def note(event: str, **fields: object) -> None:
    """Write a line to the journal."""
    line = {"event": event, "rank": dist.get_rank(), "world": dist.get_world_size(), "pid": os.getpid(), **fields}
    line["generation"] = group.generation
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({**line, "time": time.monotonic()}) + "\n")


def die_if_chosen(_: torch.Tensor) -> None:
    """In backward, with other gradients' collectives under way."""
    victim = folder / "victim"
    if victim.exists() and int(victim.read_text()) == os.getpid():
        os.kill(os.getpid(), signal.SIGKILL)


next(iter(model.module.parameters())).register_hook(die_if_chosen)
for step, micro in elastic.steps(until):
    with elastic.step():
        seen = [index for part in sampler.step() if part.weight for index in part.indices]
        note("step", step=step, seen=seen)  # before the collectives: of a finished step every rank has written
        for (data, target, _), sync in micro:
            with sync:
                elastic.backward(torch.nn.functional.mse_loss(model(data), target))
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0 if (folder / "hurry").exists() else pause)
note("left", restored=elastic.restored and elastic.restored.source, finished=elastic.finished)
if elastic.finished and dist.get_rank() == 0:
    (folder / "weights.json").write_text(json.dumps([model.module.weight.tolist(), model.module.bias.tolist()]))
dist.barrier()
