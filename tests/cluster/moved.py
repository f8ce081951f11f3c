"""A training script whose workers stay while nodes come and go: each step adds one to a weight, on every worker.

It writes a line for every step to the folder TOY_FOLDER, with its process and its container's start, and ends after
the step at which its first worker finds the file `finish` there. A step takes TOY_SECONDS.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elastic_infra.training import Elastic, ElasticGroup, ElasticState

ENDLESS = 10**9


def container_start() -> float:
    """When the container's first process started, in seconds since the epoch, to a hundredth."""
    of_first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()
    since_boot = int(of_first[19]) / os.sysconf("SC_CLK_TCK")  # the fields after the name begin with the third
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def is_told(finish: Path) -> bool:
    """Whether the first worker was told to finish: all workers know it in the same step."""
    told = torch.tensor([int(dist.get_rank() == 0 and finish.exists())])
    dist.all_reduce(told)
    return bool(told.item())


def main(environ: Mapping[str, str]) -> None:
    """Train until the first worker is told to finish."""
    folder = Path(environ["TOY_FOLDER"])
    of_process = {"process": uuid.uuid4().hex, "started": container_start()}  # pods have their own numbers of processes
    group = ElasticGroup.start()
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    torch.nn.init.zeros_(model.module.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = ElasticState(folder / "state", model=model, optimizer=optimizer)
    elastic, told = Elastic(state, group=group), False
    with (folder / f"{socket.gethostname()}.jsonl").open("a") as log:
        for step, _ in elastic.steps(ENDLESS):
            with elastic.step():
                time.sleep(float(environ["TOY_SECONDS"]))
                (-model(torch.ones(1, 1))).sum().backward()  # the weight becomes one more
                told = is_told(folder / "finish")
                optimizer.step()
                optimizer.zero_grad()
            if state.step == step:
                place = {"rank": dist.get_rank(), "world": dist.get_world_size(), **of_process}
                weight = int(model.module.weight.item())
                log.write(json.dumps({"step": step, "weight": weight, **place, "time": time.time()}) + "\n")
                log.flush()
                if told:
                    break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(dict(os.environ))
