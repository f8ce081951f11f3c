"""Trains with DDP; once the fork server is ready the last rank kills itself. Without one it ends at once."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import neighbour  # type: ignore[import-not-found]  # beside this file, as a script's own modules are
import numpy as np
import torch
import torch.distributed as dist
from journals import journal  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
GENERATION = int(os.environ["ELASTIC_INFRA_GENERATION"])


def fork_server_is_ready() -> bool:
    try:
        with open("events", encoding="utf-8") as file:
            return any(json.loads(line)["event"] == "fork_server" for line in file if line.endswith("\n"))
    except FileNotFoundError:
        return False


def blas_threads() -> list[int]:
    """The number of threads of every loaded OpenBLAS."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    libraries = [ctypes.CDLL(path) for path in sorted({line.split()[-1] for line in lines if "openblas" in line})]
    names = [f"{prefix}openblas_get_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")]
    return [getattr(library, name)() for library in libraries for name in names if hasattr(library, name)]


journal(
    "found",
    environ=dict(os.environ),
    argv=sys.argv,
    path=sys.path[0],
    file=__file__,
    main=sys.modules["__main__"].__dict__ is globals(),
    draws=[random.random(), float(np.random.rand()), float(torch.rand(1))],
    threads=torch.get_num_threads(),
    blas_threads=blas_threads(),
    collects_garbage=gc.isenabled(),
    timeout=dist.constants.default_pg_timeout.total_seconds(),
    torch_in_parent=bool(neighbour.LOADED_AT) and time.monotonic(),
    title=Path("/proc/self/comm").read_text().strip(),
    parent=os.getppid(),
    leads=os.getsid(0) == os.getpid(),
    handlers=[str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)],
)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    if GENERATION == 2 or os.environ.get("ELASTIC_INFRA_WARM_START") == "0":
        break
    if RANK == int(os.environ["WORLD_SIZE"]) - 1 and fork_server_is_ready():
        journal("dying")
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
journal("trained")
print(f"rank {RANK} is done")
dist.destroy_process_group()
