"""Trains in a group that is rebuilt in place: in_place.py FOLDER NAME STEPS [FAULT].

Writes the samples of every step to FOLDER/journal. This process ends at FAULT (``tests.training.faults``) by SIGKILL.
With the variable BALLAST the state has so many MiB more, which a newcomer does not have by itself. With COMPILED the
model is compiled, and each finished step says how many graphs that took so far. With METRIC the ranks exchange a number
after the optimizer's step. With HELD=network the state has the model without its wrapper, with HELD=part one that holds
the wrapper, and with HELD=compiled one that is compiled around it.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from elastic_infra.training import Elastic, ElasticGroup, ElasticSampler, ElasticState
from tests.training.faults import Fault, end
from tests.training.recorded_step import samples, train

folder, name, until = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
fault = Fault.parse(sys.argv[4]) if len(sys.argv) > 4 else Fault()
torch.set_num_threads(1)
group = ElasticGroup.start(experimental=os.environ.get("WAY") == "reconfigured")


class Ballast:
    """A member of the state that only has a size: tensors of 4 MiB."""

    def __init__(self, mebibytes: int, value: float) -> None:
        self.tensors = [torch.full((2**20,), value) for _ in range(mebibytes // 4)]

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {str(number): tensor for number, tensor in enumerate(self.tensors)}

    def load_state_dict(self, given: dict[str, torch.Tensor]) -> None:
        for number, tensor in enumerate(self.tensors):
            tensor.copy_(given[str(number)])


torch.manual_seed(0 if name in {"a", "b", "c"} else 99)
dataset = samples(torch.Generator().manual_seed(0))
layers = [torch.nn.Linear(4, 4, dtype=torch.float64) for _ in range(3)]
if name == "d":
    for layer in layers:
        torch.nn.init.zeros_(layer.weight)  # a newcomer's own initial weights must not count
network, is_compiled = torch.nn.Sequential(*layers), bool(os.environ.get("COMPILED"))
if is_compiled:
    # What dynamo does is the matter here, and "eager" takes no compiler. By its own method torch 2.6 to 2.9 compile
    # nothing of a Sequential.
    network = torch.compile(network, backend="eager")
has_one_bucket = is_compiled or os.environ.get("HELD") == "compiled"  # dynamo wants buckets of the usual size
model = DistributedDataParallel(network, bucket_cap_mb=None if has_one_bucket else 0.0001)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
sampler = ElasticSampler(dataset, global_batch=12, micro_batch=2)
ballast = Ballast(int(os.environ.get("BALLAST", "0")), 1.0 if name in {"a", "b", "c"} else 0.0)
held = {
    "wrapper": lambda: model,
    "network": lambda: network,
    "part": lambda: torch.nn.Sequential(model),
    "compiled": lambda: torch.compile(model, backend="eager"),
}[os.environ.get("HELD", "wrapper")]()
state = ElasticState(folder / "checkpoints", model=held, optimizer=optimizer, data=sampler, ballast=ballast)
elastic = Elastic(state, DataLoader(dataset, batch_sampler=sampler), group=group)


def die(*_: object) -> None:
    """End this process, once the fault's step is reached."""
    if state.step + 1 == fault.when:
        end()


def note(event: str, **fields: object) -> None:
    """Write a line to the journal."""
    line = {"event": event, "name": name, "pid": os.getpid(), "rank": dist.get_rank(), "world": dist.get_world_size()}
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({**line, **fields, "generation": group.generation}) + "\n")


fault.strike_at_bucket(model, lambda: state.step + 1)
fault.strike_on_entry(lambda: group.generation)
if fault.point == "backward":
    next(iter(model.module.parameters())).register_hook(die)  # the last gradient: other buckets are under way
if fault.point == "optimizer":
    optimizer.register_step_pre_hook(die)
for step, micro in elastic.steps(until):
    with elastic.step():
        if fault.point == "forward":
            die()
        train(elastic, sampler, micro, note, model if held is network else held)
        if fault.point == "metric":
            die()
        if os.environ.get("METRIC"):
            dist.all_reduce(torch.ones(1))
        time.sleep(0 if (folder / "hurry").exists() else 0.02)
    weights = float(sum(parameter.detach().sum() for parameter in model.parameters()))
    graphs = counters["stats"]["unique_graphs"] if is_compiled else 0
    note("done" if state.step == step else "broken", step=step, sum=weights, graphs=graphs)
weight = sum(float(tensor.sum()) for tensor in ballast.tensors) / 2**18
note("end", finished=elastic.finished, stopped=elastic.stopped, ballast=weight)
