"""Trains the fifty samples of other tests with ``Elastic``, on a device, and writes which samples every step had.

Usage: train.py FOLDER UNTIL SECONDS_A_STEP DEVICE BACKEND [in-place|rebuilt|copied]. A step takes so many seconds until
FOLDER has a file ``hurry``. With a mode the group is reconfigured as nodes come and go; with ``rebuilt`` the model is
two layers that are sharded over each group (FSDP2), with ``copied`` there are two copies of these where the number of
workers is even (HSDP). At its end a worker tells the sum of what it put on the device before it began. A worker whose
pid is in FOLDER/victim kills itself while the gradients of its next step are under way. One whose pid is in
FOLDER/standing stands still between the exchange of gradients and its report: a rank ahead waits.
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
from elastic_infra.training import state as state_module
from tests.gpu.device import stand_still, take
from tests.training.recorded_step import one_layer, samples, train, two_layers

folder, until, pause, kind, backend = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:6]
mode = sys.argv[6] if sys.argv[6:] else ""


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


def build() -> dict[str, torch.nn.Module | torch.optim.Optimizer]:
    """A model of two layers that is sharded over the present group, and its optimizer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    world = dist.get_world_size()
    shape = (2, world // 2) if mode == "copied" and world % 2 == 0 else (world,)
    names = ("copies", "shards")[-len(shape) :]
    layers, mesh = two_layers().to(device), init_device_mesh(kind, shape, mesh_dim_names=names)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    layers[0].register_forward_hook(lambda _, __, output: output.register_hook(end_if_chosen) and None)
    model = fully_shard(layers, mesh=mesh)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)}


if kind == "cpu":  # shards take the way beside NCCL, in a group of their own
    state_module._beside = lambda: dist.new_group(backend="gloo")
device = take(kind)
kept = torch.arange(8.0, device=device)
group = ElasticGroup.start(backend, experimental=bool(mode))
torch.manual_seed(0)
dataset = TensorDataset(*(tensor.to(device) for tensor in samples().tensors))
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
if mode in {"rebuilt", "copied"}:
    state = ElasticState(folder / "checkpoints", build=build, data=sampler)
else:
    layer = one_layer().to(device)
    model = DistributedDataParallel(layer, bucket_cap_mb=0.00001)
    next(iter(layer.parameters())).register_hook(end_if_chosen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, data=sampler)
snapshots = Snapshots(10 if state.is_rebuilt else None, durable_steps=100)
elastic = Elastic(state, DataLoader(dataset, batch_sampler=sampler), snapshots, group=group)
note("built")
for _, micro in elastic.steps(until):
    with elastic.step():
        train(elastic, sampler, micro, note)
        if is_chosen("standing"):
            stand_still(device)
        time.sleep(0 if (folder / "hurry").exists() else pause)
note("left", kept=float(kept.sum()), restored=elastic.restored and elastic.restored.source, finished=elastic.finished)
if elastic.finished:
    parameters = list(state.model.parameters())
    weights = [part.full_tensor() if hasattr(part, "full_tensor") else part for part in parameters]
    if dist.get_rank() == 0:
        (folder / "weights.json").write_text(json.dumps([part.tolist() for part in weights]))
dist.barrier()
dist.destroy_process_group()
