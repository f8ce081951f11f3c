"""Trains with ``Elastic`` and writes down which samples every finished step had: elastic_loop.py FOLDER STEPS SECONDS.

A step takes SECONDS until FOLDER has a file ``hurry``, so that a test has all its faults before the end.

A step that is repeated has a line in each generation that tried; those of the last one count.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from elastic_infra.training import Elastic, ElasticSampler, ElasticState, Snapshots

folder, until, pause = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(0)
inputs = torch.randn(50, 4, dtype=torch.float64)
dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True), torch.arange(50))
model = DistributedDataParallel(torch.nn.Linear(4, 1, dtype=torch.float64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, data=sampler)
elastic = Elastic(state, DataLoader(dataset, batch_sampler=sampler), Snapshots(durable_steps=20))


def note(event: str, **fields: object) -> None:
    """Write a line to the journal."""
    line = {"event": event, "rank": rank, "world": dist.get_world_size(), "pid": os.getpid(), **fields}
    line["generation"] = int(os.environ["ELASTIC_INFRA_GENERATION"])
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({**line, "time": time.monotonic()}) + "\n")


for step, micro in elastic.steps(until):
    with elastic.step():
        seen = [index for part in sampler.step() if part.weight for index in part.indices]
        note("step", step=step, seen=seen)  # before the collectives: of a finished step every rank has written
        read = []
        for (data, target, index), sync in micro:
            read += index.tolist()
            with sync:
                elastic.backward(torch.nn.functional.mse_loss(model(data), target))
        assert set(seen) <= set(read), "the loader gives other samples than the sampler says"
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0 if (folder / "hurry").exists() else pause)
note("left", restored=elastic.restored and elastic.restored.source, finished=elastic.finished)
if elastic.finished and rank == 0:
    (folder / "weights.json").write_text(json.dumps([model.module.weight.tolist(), model.module.bias.tolist()]))
dist.barrier()
dist.destroy_process_group()
