"""Trains with ``Elastic`` and writes which samples every step had.

Run as ``elastic_loop.py FOLDER STEPS SECONDS DURABLE [in-place|reconfigured|sharded]``. A step takes SECONDS until
FOLDER has a file ``hurry``, so that a test has all its faults before the end. A snapshot goes to disk every DURABLE
steps, with 0 every half second. With ``in-place`` the workers keep their processes when nodes come and go, with
``reconfigured`` their process group too; with ``sharded`` the model is sharded, and its weight is one row, so that rank
0 alone has it. A worker whose pid is in FOLDER/victim kills itself while the gradients of its next step are under way;
one whose pid is in FOLDER/waiting waits there to be killed, and empties the file. Building the model takes the seconds
in FOLDER/building, where it exists. A step that is repeated has a line in each generation that tried; those of the last
one count.
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

from elastic_infra.training import Elastic, ElasticGroup, ElasticSampler, ElasticState, Snapshots
from tests.training.recorded_step import samples, train

folder, until, pause, durable_steps = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
is_sharded = sys.argv[5:] == ["sharded"]
experimental = sys.argv[5:] == ["reconfigured"]
group = ElasticGroup.start(sharded=is_sharded, experimental=experimental) if sys.argv[5:] else None
if group is None:
    dist.init_process_group("gloo")

if (folder / "building").exists():
    time.sleep(float((folder / "building").read_text()))
torch.manual_seed(0)
dataset = samples()
layer = torch.nn.Linear(4, 1, dtype=torch.float64)
if is_sharded:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(layer, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
else:
    model = DistributedDataParallel(layer, bucket_cap_mb=0.00001)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, data=sampler)
loader = DataLoader(dataset, batch_sampler=sampler)
snapshots = Snapshots(durable_steps=durable_steps) if durable_steps else Snapshots(durable_seconds=0.5)
if not durable_steps:
    time.sleep(0.25 * dist.get_rank())  # the clocks of two ranks are half an interval apart
elastic = Elastic(state, loader, snapshots, group=group)


def note(event: str, **fields: object) -> None:
    """Write a line to the journal."""
    generation = group.generation if group and group.is_movable else int(os.environ["ELASTIC_INFRA_GENERATION"])
    place = {"rank": dist.get_rank(), "world": dist.get_world_size(), "pid": os.getpid(), "generation": generation}
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({"event": event, **place, **fields, "time": time.monotonic()}) + "\n")


def is_chosen(name: str) -> bool:
    """Whether this process is named in a file."""
    chosen = folder / name
    return chosen.exists() and chosen.read_text() == str(os.getpid())


def end_if_chosen(_: torch.Tensor) -> None:
    """End here in backward, or wait for the end, while the collectives of other gradients are under way."""
    if is_chosen("victim"):
        os.kill(os.getpid(), signal.SIGKILL)
    if is_chosen("waiting"):
        (folder / "waiting").write_text("")
        time.sleep(600)


next(iter(layer.parameters())).register_hook(end_if_chosen)
if group is not None:
    note("built")
for _, micro in elastic.steps(until):
    with elastic.step():
        train(elastic, sampler, micro, note)
        time.sleep(0 if (folder / "hurry").exists() else pause)
note("left", restored=elastic.restored and elastic.restored.source, finished=elastic.finished)
if elastic.finished:
    weights = [part.full_tensor() if is_sharded else part for part in (layer.weight, layer.bias)]
    if dist.get_rank() == 0:
        (folder / "weights.json").write_text(json.dumps([part.tolist() for part in weights]))
dist.barrier()
dist.destroy_process_group()
