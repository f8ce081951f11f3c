"""The device on which tests and benchmark run: NVIDIA's GPUs, or on demand the CPU in their place.

The CPU shows that scripts and assertions are right; only a run on GPUs shows what the tests are for.
"""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys
import time
from typing import Final, Literal

import torch

from tests.ports import free_port

Kind = Literal["cpu", "cuda"]

VARIABLE: Final = "TEST_DEVICE"
"""Chooses the device: ``cuda``, the default, or ``cpu``."""
BACKENDS: Final[dict[Kind, tuple[str, ...]]] = {"cuda": ("nccl",), "cpu": ("cpu:gloo", "gloo")}
"""The backends of a job's group; with the first, workers restart when nodes come or go."""
IN_PLACE: Final[dict[Kind, str]] = {"cuda": "nccl", "cpu": "gloo"}
"""The backend of a group that is reconfigured when nodes come or go."""
PROBE: Final = pathlib.Path(__file__).parent / "scripts" / "probe.py"
PROBE_SECONDS: Final = 120.0


def chosen() -> Kind:
    """The device that the environment asks for.

    Raises:
        ValueError: there is no such device.
    """
    name = os.environ.get(VARIABLE, "cuda")
    if name == "cpu":
        return "cpu"
    if name == "cuda":
        return "cuda"
    message = f"{VARIABLE} is {name!r}. Set it to cuda or to cpu."
    raise ValueError(message)


def missing(kind: Kind) -> str:
    """Why nothing can run on the device; empty where it can. Makes no CUDA context."""
    if kind == "cpu":
        return ""
    if not torch.cuda.is_available():
        return "no GPU: torch.cuda.is_available() is False"
    return "" if torch.distributed.is_nccl_available() else "this torch has no NCCL"


def missing_for(kind: Kind, ranks: int) -> str:
    """Why so many ranks cannot meet here; empty where they can. They share one GPU, or have one each."""
    found = torch.cuda.device_count()
    if kind == "cuda" and 1 < found < ranks:
        return f"needs {ranks} GPUs and finds {found}"
    return missing_for_two(kind)


@functools.cache
def missing_for_two(kind: Kind) -> str:
    """Why two ranks cannot meet here; empty where two processes have done so."""
    port = free_port()
    common = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2]), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROBE), kind, BACKENDS[kind][0]],
            env={**common, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [_end_of(rank) for rank in ranks]
    if not any(rank.returncode for rank in ranks):
        return ""
    needs = "" if kind == "cpu" else f"needs two GPUs and finds {torch.cuda.device_count()}: "
    return f"{needs}two ranks cannot meet: {' | '.join(filter(None, said))}"


def _end_of(rank: subprocess.Popen[str]) -> str:
    """The last line that it wrote to stderr."""
    try:
        text = rank.communicate(timeout=PROBE_SECONDS)[1]
    except subprocess.TimeoutExpired:
        rank.kill()
        rank.communicate()
        return f"no answer in {PROBE_SECONDS:.0f} s"
    return text.strip().rpartition("\n")[2]


def take(kind: str) -> torch.device:
    """The device of this worker, by its rank; call it in the worker, before its process group is made.

    NCCL refuses two ranks on one GPU of one host ("Duplicate GPU detected"). Where ranks outnumber GPUs, or may once
    nodes come, each worker therefore claims to be a host of its own, so that they talk over sockets:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid
    """
    if kind == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    rank, count = int(os.environ.get("RANK", "0")), torch.cuda.device_count()
    if max(2, int(os.environ.get("WORLD_SIZE", "1"))) > count:
        os.environ["NCCL_HOSTID"] = f"worker-{os.getpid()}"
    device = torch.device("cuda", rank % count)
    torch.cuda.set_device(device)
    return device


def settle(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def stand_still(device: torch.device) -> None:
    """Never return: on a GPU the rank waits for a kernel that does not end."""
    if device.type == "cuda":
        torch.cuda._sleep(10**15)  # torch's own tests hold a stream up with it
        torch.cuda.synchronize(device)
    time.sleep(3600)


def free_bytes(device: torch.device) -> int:
    """The GPU's memory that nobody uses; 0 on the CPU, whose memory changes with every other process."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0
