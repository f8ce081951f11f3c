"""Trains with ``Elastic`` and writes the random number that each rank draws in each step.

Run as ``draws.py FOLDER STEPS``. A step takes a second until FOLDER has a file ``hurry``; its number is drawn and
written at its beginning. Its loader, whose ``iter`` draws as well, must not count.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from elastic_infra.training import Elastic, ElasticSampler, ElasticState, Snapshots

folder, until = pathlib.Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 1)
torch.manual_seed(dist.get_rank())
sampler = ElasticSampler(8, global_batch=4)
loader = DataLoader(range(8), batch_sampler=sampler)
elastic = Elastic(ElasticState(None, model=model, data=sampler), loader, Snapshots(memory_steps=1))


def step(state: ElasticState) -> None:
    """Draw, and meet the others."""
    number = torch.rand(1)
    line = {
        "event": "step",
        "step": state.step + 1,
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "generation": int(os.environ["ELASTIC_INFRA_GENERATION"]),
        "pid": os.getpid(),
        "draw": number.item(),
        "source": elastic.restored and elastic.restored.source,
        "time": time.monotonic(),
    }
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps(line) + "\n")
    time.sleep(0 if (folder / "hurry").exists() else 1)
    dist.all_reduce(number)


for _, micro in elastic.steps(until):
    with elastic.step():
        step(elastic.state)
        for _batch in micro:
            pass
dist.destroy_process_group()
