"""Trains with ``Elastic`` and writes which samples every step had.

Run as ``elastic_loop.py FOLDER STEPS SECONDS DURABLE [MODE]``. A step takes SECONDS until FOLDER has a file ``hurry``,
so that a test has all its faults before the end. A snapshot goes to disk every DURABLE steps, with 0 every half second.
With the mode ``in-place`` the workers keep their processes when nodes come and go, with ``reconfigured`` their process
group too; with ``sharded`` the model is sharded, and its weight is one row, so that rank 0 alone has it. With
``rebuilt`` workers keep their processes and build two sharded layers in each group; with ``copied`` there are two
copies of these where the number of workers is even (HSDP). ``streamed`` is ``in-place`` with a stream that gives the
same samples in the same order, and is read in a process of its own. A worker whose pid is in FOLDER/victim kills itself
while the gradients of its next step are under way; one whose pid is in FOLDER/waiting waits there to be killed, and
empties the file; one whose pid is in FOLDER/cut ends its connections there, and empties the file. Copies of shards do
not arrive while FOLDER/away exists. Building the model takes the seconds in FOLDER/building, where it exists. Each
worker has as many processes that load its data as the variable LOADERS says, by default none. FOLDER/raising has the
number of a step in which a ValueError is raised, and the pids of the workers that raise it; without pids all do,
whenever they come to that step. A worker with the variable RAISES does in each step. A step that is repeated has a line
in each generation that tried; those of the last one count.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from elastic_infra.training import Elastic, ElasticGroup, ElasticSampler, ElasticState, Snapshots
from elastic_infra.training.node_memory import NodeMemory
from tests.training.recorded_step import one_layer, samples, stream_of, train, two_layers

folder, until, pause, durable_steps = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
is_sharded, is_rebuilt = sys.argv[5:] == ["sharded"], sys.argv[5:] in (["rebuilt"], ["copied"])
experimental, is_streamed = sys.argv[5:] == ["reconfigured"], sys.argv[5:] == ["streamed"]
group = ElasticGroup.start(sharded=is_sharded, experimental=experimental) if sys.argv[5:] else None
if group is None:
    dist.init_process_group("gloo")

if (folder / "building").exists():
    time.sleep(float((folder / "building").read_text()))
torch.manual_seed(0)
dataset = samples()
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
stream = stream_of(sampler, dataset)
if is_sharded or is_rebuilt:
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import fully_shard


def is_chosen(name: str) -> bool:
    """Whether this process is named in a file."""
    chosen = folder / name
    return chosen.exists() and chosen.read_text() == str(os.getpid())


def end_if_chosen(_: torch.Tensor) -> None:
    """End here in backward, or wait for the end, while the collectives of other gradients are under way."""
    if is_chosen("victim"):
        os.kill(os.getpid(), signal.SIGKILL)
    if is_chosen("cut"):
        (folder / "cut").write_text("")
        end_connections()
    if is_chosen("waiting"):
        (folder / "waiting").write_text("")
        time.sleep(600)


def end_connections() -> None:
    """End all TCP connections of this process, as a network does that has forgotten them."""
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as end:
                    if end.family in {socket.AF_INET, socket.AF_INET6} and end.getpeername():
                        end.shutdown(socket.SHUT_RDWR)


def raise_if_chosen(step: int) -> None:
    """Raise the error of a script that cannot make this step."""
    raising = folder / "raising"
    chosen, *pids = raising.read_text().split() if raising.exists() else ("0",)
    is_chosen_step = step == int(chosen) and (not pids or str(os.getpid()) in pids)
    if is_chosen_step or "RAISES" in os.environ:
        message = "raised for the test"
        raise ValueError(message)


def receive(memory: NodeMemory, place: int, size: int) -> tuple[memoryview, Callable[[], None]]:
    """Room for a copy, once copies may arrive."""
    while (folder / "away").exists():
        time.sleep(0.05)
    return take_copy(memory, place, size)


take_copy = NodeMemory.receive
NodeMemory.receive = receive  # type: ignore[assignment, method-assign]


def mesh() -> DeviceMesh:
    """All ranks, in two halves with a copy each where that is asked for and can be done."""
    world = dist.get_world_size()
    if sys.argv[5:] == ["copied"] and world % 2 == 0:
        return init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copies", "shards"))
    return init_device_mesh("cpu", (world,), mesh_dim_names=("shards",))


def build() -> dict[str, torch.nn.Module | torch.optim.Optimizer]:
    """A model of two layers that is sharded over the present group, and its optimizer."""
    layers, ranks = two_layers(), mesh()
    for layer in layers:
        fully_shard(layer, mesh=ranks)
    layers[0].register_forward_hook(lambda _, __, output: output.register_hook(end_if_chosen) and None)
    model = fully_shard(layers, mesh=ranks)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)}


data = stream if is_streamed else sampler
if is_rebuilt:
    state = ElasticState(folder / "checkpoints", build=build, data=data)
else:
    layer = one_layer()
    next(iter(layer.parameters())).register_hook(end_if_chosen)
    model = fully_shard(layer, mesh=mesh()) if is_sharded else DistributedDataParallel(layer, bucket_cap_mb=0.00001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    state = ElasticState(folder / "checkpoints", model=model, optimizer=optimizer, data=data)
loaders = int(os.environ.get("LOADERS", "0"))
loader = (
    DataLoader(stream, batch_size=None)
    if is_streamed
    else DataLoader(dataset, batch_sampler=sampler, num_workers=loaders)
)
snapshots = (
    Snapshots(1 if is_rebuilt else None, durable_steps=durable_steps)
    if durable_steps
    else Snapshots(durable_seconds=0.5)
)
if not durable_steps:
    time.sleep(0.25 * dist.get_rank())  # the clocks of two ranks are half an interval apart
elastic = Elastic(state, loader, snapshots, group=group)


def note(event: str, **fields: object) -> None:
    """Write a line to the journal."""
    generation = group.generation if group and group.is_movable else int(os.environ["ELASTIC_INFRA_GENERATION"])
    place = {"rank": dist.get_rank(), "world": dist.get_world_size(), "pid": os.getpid(), "generation": generation}
    place["restarts"] = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({"event": event, **place, **fields, "time": time.monotonic()}) + "\n")


if group is not None:
    note("built")
elastic.on_preemption(lambda: note("preempted"))
for step, micro in elastic.steps(until):
    with elastic.step():
        raise_if_chosen(step)
        train(elastic, data, micro, note)
        time.sleep(0 if (folder / "hurry").exists() else pause)
note("left", restored=elastic.restored and elastic.restored.source, finished=elastic.finished)
if elastic.finished:
    parameters = list(state.model.parameters())
    weights = [part.full_tensor() if hasattr(part, "full_tensor") else part for part in parameters]
    if dist.get_rank() == 0:
        (folder / "weights.json").write_text(json.dumps([part.tolist() for part in weights]))
    dist.barrier()
dist.destroy_process_group()
