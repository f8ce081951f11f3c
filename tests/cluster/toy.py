"""A training script with an exact end: after any changes of nodes the weights are the same.

A step draws the same samples for any number of workers, each worker sums its share in integers, and the sum
over workers is exact. It checkpoints to the folder TOY_FOLDER every TOY_EVERY steps, writes a line for every
step, and resumes from the last checkpoint. It ends after TOY_STEPS steps, or after the step at which its first
worker finds the file `finish` in the folder. Further variables: TOY_SECONDS (the length of a step), TOY_BUSY
(1: burn CPU for that time rather than sleep), TOY_REPORTS (1: tell the package's launcher of every step, and save
and leave at the step that it names).
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

MODULUS = 2_147_483_647
SAMPLES = 24
"""Divided evenly by 1, 2, 3, 4, 6 and 8 workers, unevenly by others."""


def share(step: int, rank: int, world: int) -> int:
    """One worker's part of a step's update."""
    return sum((step * 31 + sample * 17) ** 2 % MODULUS for sample in range(rank, SAMPLES, world))


def update(weight: int, total: int) -> int:
    """The weight after a step; order matters, so a lost or repeated step shows."""
    return (weight * 48_271 + total) % MODULUS


def undisturbed(steps: int) -> int:
    """The weight after `steps` steps."""
    weight = 1
    for step in range(steps):
        weight = update(weight, share(step, 0, 1))
    return weight


def load(folder: Path) -> tuple[int, int]:
    """The next step and the weight."""
    try:
        saved = json.loads((folder / "checkpoint.json").read_text())
    except FileNotFoundError:
        return 0, 1
    return saved["step"], saved["weight"]


def save(folder: Path, step: int, weight: int) -> None:
    """Replaces the checkpoint at once."""
    partial = folder / "checkpoint.new"
    partial.write_text(json.dumps({"step": step, "weight": weight}))
    partial.replace(folder / "checkpoint.json")


def spend(seconds: float, *, busy: bool) -> None:
    """Takes the time of a step."""
    if not busy:
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def hog(folder: Path) -> None:
    """Takes memory until the kernel kills this process; the next one finds the mark and does not."""
    mark = folder / "hogged"
    if mark.exists():
        return
    mark.touch()
    taken = []
    while True:
        taken.append(b"x" * (1 << 24))


def exchange(step: int, rank: int, world: int, finish: Path) -> tuple[int, bool]:
    """All workers' sum of a step, and whether the first one was told to finish."""
    told = rank == 0 and finish.exists()
    sums = torch.tensor([share(step, rank, world), int(told)], dtype=torch.int64)
    dist.all_reduce(sums)
    return int(sums[0].item()), bool(sums[1].item())


def reporter(environ: dict[str, str]) -> Callable[[int], bool]:
    """Tells the launcher of a step and returns whether to save and leave; without TOY_REPORTS it does not."""
    if environ.get("TOY_REPORTS") != "1":
        return lambda _: False
    from elastic_infra.training import Progress

    return Progress().step


def main(environ: dict[str, str]) -> None:
    """Trains to the end, or to where it is told to leave."""
    folder = Path(environ["TOY_FOLDER"])
    steps, every = int(environ["TOY_STEPS"]), int(environ.get("TOY_EVERY", "5"))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    step, weight = load(folder)
    done, report = step >= steps, reporter(environ)
    with (folder / f"{socket.gethostname()}.jsonl").open("a") as log:
        while not done:
            spend(float(environ.get("TOY_SECONDS", "0.5")), busy=environ.get("TOY_BUSY") == "1")
            total, told = exchange(step, rank, world, folder / "finish")
            if environ.get("TOY_HOG") == "1" and (rank, step) == (0, 10):
                hog(folder)
            weight = update(weight, total)
            step += 1
            done = told or step == steps or report(step)
            record = {"step": step, "rank": rank, "world": world, "time": time.time(), "weight": weight}
            log.write(json.dumps({**record, "image": environ.get("TOY_IMAGE", "")}) + "\n")
            log.flush()
            if rank == 0 and (step % every == 0 or done):
                save(folder, step, weight)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(dict(os.environ))
