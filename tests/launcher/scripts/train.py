"""A training script for tests: one all-reduce a step over gloo, a checkpoint of the step, a journal of what happened.

Usage: train.py FOLDER STEPS SECONDS_A_STEP. It ends after STEPS steps, counted over all generations by the checkpoint.
"""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

from elastic_infra.training.progress import Progress

folder, steps, pause = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
checkpoint = folder / "checkpoint"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def journal(event: str, step: int) -> None:
    """Append one line; short appends are atomic."""
    line = {
        "event": event,
        "step": step,
        "rank": rank,
        "world": world,
        "generation": int(os.environ["ELASTIC_INFRA_GENERATION"]),
        "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        "pid": os.getpid(),
        "time": time.monotonic(),
    }
    with (folder / "journal").open("a") as file:
        file.write(json.dumps(line) + "\n")


def save(step: int) -> None:
    """Rank 0 writes, atomically."""
    if rank == 0:
        temporary = folder / f"checkpoint.{os.getpid()}"
        temporary.write_text(str(step))
        temporary.rename(checkpoint)


def main() -> None:
    """Train from the checkpoint to the last step."""
    journal("start", -1)
    dist.init_process_group("gloo")
    progress = Progress()
    first = int(checkpoint.read_text()) + 1 if checkpoint.exists() else 0
    for step in range(first, steps):
        one = torch.ones(1)
        dist.all_reduce(one)
        assert int(one) == world
        time.sleep(pause)
        journal("step", step)
        crash = folder / f"crash-{rank}-{step}"
        if crash.exists():
            crash.unlink()
            sys.exit(7)
        if progress.step(step):
            save(step)
            journal("stopped", step)
            break
        if step % 10 == 9:
            save(step)
    else:
        save(steps - 1)
        journal("finished", steps - 1)
    dist.destroy_process_group()


main()
