"""One worker of the soak in place: the exact training, which dies where its order says.

Usage: train.py FOLDER [sharded] [fixed]. With ``sharded`` the model is built anew and sharded in each group. With
``fixed`` DDP keeps its first buckets: after the first step of a group it would build others, in which the gradients of
the ranks are added up in another order. An order is the file ``order-PID``: a point of the step and ``kill`` or
``wait``. Waiting, the worker renames it to ``there-PID`` and is killed with its node. FOLDER/journal gets lines from
every worker: ``begun`` with the step's samples before anything is exchanged, ``step`` with the weights' mark and the
digest of weights and momenta once the step counts, and what the process holds when a generation has settled. The job
ends after the step in the file ``finish``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from elastic_infra.training import Elastic, ElasticGroup, ElasticState, Snapshots
from tests.launcher.soak_in_place import exact
from tests.launcher.soak_in_place.holdings import holdings

STEP_SECONDS = 0.03
DURABLE_STEPS = 500
GROUP_TIMEOUT = timedelta(seconds=60)
"""Gloo leaves a collective of some broken groups waiting for so long, with a thread and the group's connections: by
torch's default for half an hour, which would look like growth."""
SETTLED = 4
"""The step of a generation after which a worker says what it holds."""

folder, is_sharded, is_fixed = Path(sys.argv[1]), "sharded" in sys.argv[2:], "fixed" in sys.argv[2:]
torch.set_num_threads(1)
group = ElasticGroup.start(timeout=GROUP_TIMEOUT)
torch.manual_seed(0)
sampler = exact.sampler(micro_batch=2)
loader = DataLoader(exact.samples(), batch_sampler=sampler)
order, there = (folder / f"{name}-{os.getpid()}" for name in ("order", "there"))


def note(event: str, **fields: object) -> None:
    """Append one line by one write, so that lines of several writers do not mix."""
    place = {"rank": dist.get_rank(), "world": dist.get_world_size(), "generation": group.generation}
    line = json.dumps({"event": event, "time": time.monotonic(), "pid": os.getpid(), **place, **fields}) + "\n"
    descriptor = os.open(folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def pass_point(point: str) -> None:
    """Die here, or wait for the end of the node, where the order says so."""
    if not order.exists():
        return
    at, action = order.read_text().split()
    if at != point:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    order.rename(there)
    time.sleep(600)


def last_step() -> int | None:
    """The step after which the job ends; None while nobody has said."""
    path = folder / "finish"
    return int(path.read_text()) if path.exists() else None


def sharded() -> dict[str, torch.nn.Module | torch.optim.Optimizer]:
    """The model over the present group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network, mesh = exact.Linear(), init_device_mesh("cpu", (dist.get_world_size(),))
    for place, layer in enumerate(network.parts):
        network.parts[place] = fully_shard(exact.Rows(layer), mesh=mesh)
    network.parts[0].register_forward_hook(lambda _, __, output: output.register_hook(in_backward) and None)
    model = fully_shard(network, mesh=mesh)
    return {"model": model, "optimizer": exact.optimizer(model)}


def in_backward(_: torch.Tensor) -> None:
    """The point in the middle of backward."""
    pass_point("backward")


if is_sharded:
    state = ElasticState(folder / "checkpoints", build=sharded, data=sampler)
    snapshots = Snapshots(memory_steps=1, durable_steps=DURABLE_STEPS // 10)
else:
    model = DistributedDataParallel(exact.Linear(), bucket_cap_mb=0.00001, find_unused_parameters=is_fixed)
    next(iter(model.parameters())).register_hook(in_backward)
    state = ElasticState(folder / "checkpoints", model=model, optimizer=exact.optimizer(model), data=sampler)
    snapshots = Snapshots(durable_steps=DURABLE_STEPS)
elastic = Elastic(state, loader, snapshots, group=group)
settled = (0, 0)
for step, micro in elastic.steps(10**9):
    with elastic.step():
        pass_point("forward")
        note("begun", step=step, seen=[index for part in sampler.step() if part.weight for index in part.indices])
        for (inputs, _), sync in micro:
            with sync:
                elastic.backward(state.model(inputs).mean())
        pass_point("reduced")
        state.optimizer.step()
        state.optimizer.zero_grad()
        mark, digest = exact.mark(state.model), exact.digest(state.model, state.optimizer)
        pass_point("optimized")
        time.sleep(STEP_SECONDS)
    if state.step == step:
        settled = (group.generation, settled[1] + 1 if settled[0] == group.generation else 1)
        note("step", step=step, mark=mark, digest=digest, **(holdings(os.getpid()) if settled[1] == SETTLED else {}))
    pass_point("done")
    if (last := last_step()) is not None and state.step >= last:
        break
group.leave()
state.wait()
note("end", step=state.step)
dist.barrier()
dist.destroy_process_group()
