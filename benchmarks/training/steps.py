"""The time that ``elastic.step()`` adds to a step in which nothing happens.

python steps.py OUT MEGABYTES in-place|restart    in a worker of this launcher: an empty loop beside empty steps
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from benchmarks.launcher import arms
from benchmarks.launcher.job import Job, await_, folder
from benchmarks.training import model
from benchmarks.training.train import ENDLESS
from elastic_infra.training import Elastic, ElasticGroup, ElasticState, Snapshots

STEPS: Final = 2_000
"""Number of steps of one sample."""
SAMPLES: Final = 20
LONGEST_SECONDS: Final = 120.0


def measured(megabytes: int, arm: str) -> list[float]:
    """Seconds that one step takes without any work in it, by sample, in a worker of this launcher."""
    with folder() as path:
        out = path / "seconds.json"
        script = (str(Path(__file__)), str(out), str(megabytes), arm.replace(" ", "-"))
        with Job(path, arms.OURS, arms.Launch("1:1"), script) as job:
            job.start_node()
            await_(job.has_ended, LONGEST_SECONDS)
        seconds: list[float] = json.loads(out.read_text())
    return seconds


def main(out: Path, megabytes: int, arm: str) -> None:
    """Make empty steps and write how long each took, less the loop around it."""
    torch.set_num_threads(1)
    group = ElasticGroup.start() if arm == "in-place" else None
    if group is None:
        dist.init_process_group("gloo")
    network = model.network(megabytes)
    optimizer = model.optimizer(network)
    state = ElasticState(None, model=network, optimizer=optimizer)
    elastic = Elastic(state, snapshots=Snapshots(memory_steps=ENDLESS, durable_steps=ENDLESS), group=group)
    steps = elastic.steps(ENDLESS)
    seconds = []
    for _ in range(SAMPLES + 1):
        begin = time.perf_counter()
        for _ in range(STEPS):
            next(steps)
            with elastic.step():
                pass
        seconds.append((time.perf_counter() - begin) / STEPS)
    out.write_text(json.dumps(seconds[1:]))  # the first sample also begins the training
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
