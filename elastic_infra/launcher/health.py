"""``python -m elastic_infra.launcher.health``: whether a cluster node is fit to train, before its launcher starts.

Runs as an init container with the devices and volumes of the training container. torch is imported in separate
processes alone: a driver that hangs or a GPU that is lost ends those, and not the report.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .exit_codes import RETRY

COUNT: Final = """
import torch
kind = "xpu" if getattr(torch, "xpu", None) and torch.xpu.is_available() else "cuda"
count = getattr(torch, kind).device_count()
for each in range(count):
    torch.ones(1024, device=f"{kind}:{each}").sum().item()
print(count)
"""
"""Counts the devices on which a sum can be computed."""

LOOPBACK: Final = """
import os, torch, torch.distributed as dist
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = f"cuda:{rank}" if torch.cuda.is_available() else "cpu"
dist.init_process_group("gloo" if device == "cpu" else "nccl")
tensor = torch.full((1 << 22,), rank + 1.0, device=device)
dist.all_reduce(tensor)
assert (tensor == size * (size + 1) / 2).all(), "the sum is wrong"
dist.destroy_process_group()
"""
"""Adds up 16 MiB over all GPUs of the node, one process each; over processes where there is no GPU."""


def main(arguments: Sequence[str]) -> int:
    """Look, and say in one line what is wrong; the exit code is one after which the pod is made anew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=0)  # 0 does not look
    parser.add_argument("--nccl", action="store_true")
    parser.add_argument("--disk", type=int, default=0)  # bytes that should be free in each folder
    parser.add_argument("--timeout", type=int, default=300)  # seconds for all of it
    parser.add_argument("folders", nargs="*", type=Path)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(given.timeout)
    try:
        faults = [fault for folder in given.folders for fault in folder_faults(folder, given.disk)]
        faults += gpu_faults(given.gpus) if given.gpus else ()
        if given.nccl and not faults:
            faults += loopback_faults(given.gpus)
    except TimeoutError:
        faults = [f"the check did not end within {given.timeout} s"]
    node = os.environ.get("ELASTIC_INFRA_CLUSTER_NODE")
    verdict = f"not fit to train: {'; '.join(faults)}" if faults else "fit to train"
    print(f"health: cluster node {node} is {verdict}.", file=sys.stderr)
    return RETRY if faults else 0


def _late(*_: object) -> None:
    raise TimeoutError


def folder_faults(folder: Path, needed: int) -> Iterator[str]:
    """What is wrong with a folder: it cannot be written, or has less room than is needed."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield f"{folder} cannot be written: {error.strerror}"
        return
    if free < needed:
        yield f"{folder} has {free / 2**30:.3g} GiB free, and {needed / 2**30:.3g} GiB are asked for"


def gpu_faults(expected: int) -> Iterator[str]:
    """What is wrong with the GPUs: some are missing, or do not compute."""
    [(code, said)] = _run([(COUNT, {})])
    if code:
        yield f"its GPUs do not compute: {said}"
    elif int(said) != expected:
        yield f"it shows {said} of {expected} GPUs"


def loopback_faults(count: int) -> Iterator[str]:
    """What is wrong with the links between the GPUs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    ends = _run([(LOOPBACK, {**place, "RANK": str(rank)}) for rank in range(count)])
    for rank, (code, said) in enumerate(ends):
        if code not in {0, -signal.SIGKILL}:
            yield f"GPU {rank} cannot add up with the others: {said}"


def _run(programs: Sequence[tuple[str, dict[str, str]]]) -> list[tuple[int, str]]:
    """Exit code and last words of each of these Python programs, of which all end once one fails."""
    outputs = [os.memfd_create("output") for _ in programs]  # no pipe, which may fill up
    running = [
        subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **environ}, stdout=output, stderr=output)
        for (program, environ), output in zip(programs, outputs, strict=True)
    ]
    try:
        while None in (codes := [each.poll() for each in running]) and not any(codes):
            time.sleep(0.1)
    finally:
        for each in running:
            each.kill()
    return [(each.wait(), _last_words(output)) for each, output in zip(running, outputs, strict=True)]


def _last_words(output: int) -> str:
    """The line with which the last exception begins, else the last line.

    CUDA's errors end with advice, and torch may still warn after them.
    """
    with open(output, errors="replace") as file:
        file.seek(0)
        text = re.sub(r"^\[rank\d+\]: ", "", file.read(), flags=re.MULTILINE).strip()  # by torch, in a group
    *before, last = text.split("Traceback (most recent call last):\n")
    lines = last.splitlines() or ["it said nothing"]
    if before:
        lines = [line for line in lines if not line.startswith(" ")][:1] or lines
    return lines[-1]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
