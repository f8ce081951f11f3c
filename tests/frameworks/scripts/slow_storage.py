"""The scripts' data: random rows behind a slow storage that logs its readers.

The file ``latency`` beside the access log holds the seconds that a row takes; the test that runs a script shortens them
after the last fault.
"""

import json
import multiprocessing
import os
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

STORAGE = Path(os.environ["STORAGE"])
ROWS = 100_000
WIDTH = 16


def read(index: int) -> torch.Generator:
    """Wait for a row; its numbers are drawn from the generator."""
    time.sleep(float((STORAGE / "latency").read_text()))
    parent = multiprocessing.parent_process()
    line = {
        "time": time.monotonic(),
        "rank": int(os.environ.get("RANK", "0")),
        "world": int(os.environ.get("WORLD_SIZE", "1")),
        "trainer": parent.pid if parent else os.getpid(),
        "index": index,
    }
    with (STORAGE / "access_log").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return torch.Generator().manual_seed(index)


class Points(Dataset):
    """Points and the side of a plane on which they are."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        point = torch.randn(WIDTH, generator=read(index))
        return point, (point.sum() > 0).long()


class Sentences(Dataset):
    """Token ids for a language model."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        ids = torch.randint(0, 64, (WIDTH,), generator=read(index))
        return {"input_ids": ids, "labels": ids}
