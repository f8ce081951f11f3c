"""One worker of the soak: the exact training of ``tests.cluster.toy``, with a process inventory at its start.

Usage: train.py FOLDER. It saves every few steps and at the step at which all are told to stop, resumes from the
furthest checkpoint there is, and ends after the step at which rank 0 finds the file ``finish``. Every group saves in
a folder of its own, so that a worker of an older one, thawed late, overwrites nothing. FOLDER/journal gets a line
for every start, with the other workers alive then, and one for every step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from elastic_infra.training import Progress
from tests.launcher.soak import process_inventory

STEP_SECONDS = 0.05
SAVE_EVERY = 5


def worker_of(environ: dict[str, str]) -> process_inventory.Worker:
    """The name of this worker."""
    return process_inventory.Worker(
        node=environ["ELASTIC_INFRA_NODE_NAME"],
        generation=int(environ["ELASTIC_INFRA_GENERATION"]),
        meeting=f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}",
        rank=int(environ["RANK"]),
        world=int(environ["WORLD_SIZE"]),
        pid=os.getpid(),
    )


def write(folder: Path, event: str, worker: process_inventory.Worker, **fields: object) -> None:
    """Append one line by one write, so that lines of several writers do not mix."""
    head = {"event": event, "time": time.monotonic(), "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
    line = json.dumps({**head, **vars(worker), **fields}) + "\n"
    descriptor = os.open(folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def train(folder: Path, worker: process_inventory.Worker) -> None:
    """From the furthest checkpoint until told to stop or to finish."""
    import torch
    import torch.distributed as dist

    from tests.cluster import toy

    dist.init_process_group("gloo")
    start = torch.tensor(max(toy.load(path) for path in (folder, *folder.glob("saved/*"))), dtype=torch.int64)
    dist.broadcast(start, 0)  # the others may have looked a moment later
    step, weight = (int(number) for number in start)
    saved = folder / "saved" / f"{worker.generation}-{worker.meeting}"
    progress, done, told = Progress(), False, False
    while not (done or told):
        toy.spend(STEP_SECONDS, busy=False)
        total, done = toy.exchange(step, worker.rank, worker.world, folder / "finish")
        weight, step = toy.update(weight, total), step + 1
        if worker.rank == 0:
            write(folder, "step", worker, step=step, weight=weight)
        told = progress.step(step)
        if step % SAVE_EVERY == 0 or told or done:
            if worker.rank == 0:
                saved.mkdir(parents=True, exist_ok=True)
                toy.save(saved, step, weight)
            progress.checkpoint(step)
    write(folder, "finished" if done else "stopped", worker, step=step)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Be counted, then train."""
    folder, worker = Path(sys.argv[1]), worker_of(dict(os.environ))
    process_inventory.enter(folder / "alive", worker)
    write(folder, "start", worker, alive=[vars(other) for other in process_inventory.take(folder / "alive")])
    train(folder, worker)


if __name__ == "__main__":
    main()
