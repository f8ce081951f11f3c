"""Trains the fifty samples of other tests with ``Elastic``, on a device, and writes which samples every step had.

Usage: train.py FOLDER UNTIL SECONDS_A_STEP DEVICE BACKEND [experimental]. A step takes so many seconds until FOLDER has
a file ``hurry``. With ``experimental`` the group is reconfigured as nodes come and go. At its end a worker tells the
sum of what it put on the device before it began. A worker whose pid is in FOLDER/victim kills itself while the
gradients of its next step are under way. One whose pid is in FOLDER/standing stands still between the exchange of
gradients and its report: a rank ahead waits.
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
from tests.gpu.device import stand_still, take
from tests.training.recorded_step import samples, train

folder, until, pause, kind, backend = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:6]


def note(event: str, **fields: object) -> None:
    """Write a line to the journal."""
    generation = group.generation if group.is_movable else int(os.environ["ELASTIC_INFRA_GENERATION"])
    place = {"rank": dist.get_rank(), "world": dist.get_world_size(), "pid": os.getpid(), "generation": generation}
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({"event": event, **place, "restarts": restarts, **fields, "time": now()}) + "\n")


def now() -> float:
    """Seconds by the machine's clock."""
    return time.monotonic()


def is_chosen(name: str) -> bool:
    """Whether this process is named in a file."""
    path = folder / name
    return path.exists() and path.read_text() == str(os.getpid())


def end_if_chosen(_: torch.Tensor) -> None:
    """End in backward, while the collectives of other gradients are under way."""
    if is_chosen("victim"):
        os.kill(os.getpid(), signal.SIGKILL)


device = take(kind)
kept = torch.arange(8.0, device=device)
group = ElasticGroup.start(backend, experimental=sys.argv[6:] == ["experimental"])
torch.manual_seed(0)
dataset = TensorDataset(*(tensor.to(device) for tensor in samples().tensors))
layer = torch.nn.Linear(4, 1, dtype=torch.float64).to(device)
model = DistributedDataParallel(layer, bucket_cap_mb=0.00001)
next(iter(layer.parameters())).register_hook(end_if_chosen)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, data=sampler)
elastic = Elastic(state, DataLoader(dataset, batch_sampler=sampler), Snapshots(durable_steps=100), group=group)
note("built")
for _, micro in elastic.steps(until):
    with elastic.step():
        train(elastic, sampler, micro, note)
        if is_chosen("standing"):
            stand_still(device)
        time.sleep(0 if (folder / "hurry").exists() else pause)
note("left", kept=float(kept.sum()), restored=elastic.restored and elastic.restored.source, finished=elastic.finished)
if elastic.finished and dist.get_rank() == 0:
    (folder / "weights.json").write_text(json.dumps([layer.weight.tolist(), layer.bias.tolist()]))
dist.barrier()
dist.destroy_process_group()
