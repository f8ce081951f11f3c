"""Trains in a group that is rebuilt in place: in_place.py FOLDER NAME STEPS [FAULT].

Writes the samples of every step to FOLDER/journal. FAULT is ``STEP:POINT``: this process ends at that point by SIGKILL;
with ``late`` a collective of the script breaks after the optimizer has stepped, in this process or in a peer.
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
from torch.utils.data import DataLoader

from elastic_infra.training import Elastic, ElasticGroup, ElasticSampler, ElasticState
from tests.training.recorded_step import samples, train

folder, name, until = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
at, point = sys.argv[4].split(":") if len(sys.argv) > 4 else ("-1", "")
torch.set_num_threads(1)
group = ElasticGroup.start(experimental=os.environ.get("WAY") == "reconfigured")

torch.manual_seed(0 if name in {"a", "b", "c"} else 99)
dataset = samples(torch.Generator().manual_seed(0))
layers = [torch.nn.Linear(4, 4, dtype=torch.float64) for _ in range(3)]
if name == "d":
    for layer in layers:
        torch.nn.init.zeros_(layer.weight)  # a newcomer's own initial weights must not count
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.0001)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, data=sampler)
elastic = Elastic(state, DataLoader(dataset, batch_sampler=sampler), group=group)


def die(*_: object) -> None:
    """End this process, once the fault's step is reached."""
    if state.step + 1 == int(at):
        os.kill(os.getpid(), signal.SIGKILL)


def note(event: str, **fields: object) -> None:
    """Write a line to the journal."""
    line = {"event": event, "name": name, "pid": os.getpid(), "rank": dist.get_rank(), "world": dist.get_world_size()}
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({**line, **fields, "generation": group.generation}) + "\n")


if point == "backward":
    next(iter(model.module.parameters())).register_hook(die)  # the last gradient: other buckets are under way
if point == "optimizer":
    optimizer.register_step_pre_hook(die)
for step, micro in elastic.steps(until):
    with elastic.step():
        if point == "forward":
            die()
        train(elastic, sampler, micro, note)
        if at != "-1" and point.startswith("late"):
            if point == "late":
                die()
            dist.all_reduce(torch.zeros(1))
        time.sleep(0 if (folder / "hurry").exists() else 0.02)
    weights = float(sum(parameter.detach().sum() for parameter in model.parameters()))
    note("done" if state.step == step else "broken", step=step, sum=weights)
note("end", finished=elastic.finished, stopped=elastic.stopped)
