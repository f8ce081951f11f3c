"""How long training waits for a snapshot of a large state on the device, beside ``torch.save``.

python -m benchmarks.gpu.copies MEGABYTES    prints the seconds of each, and the device's name
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.training import copies, model
from benchmarks.training.labels import FIRST, SNAPSHOT, TORCH
from elastic_infra.launcher.workers import progress
from elastic_infra.training import ElasticState
from tests.gpu.device import chosen, settle, take

SAVES: Final = 5


def measured(megabytes: int) -> dict[str, Any]:
    """The stalls in a process of its own, which has a launcher's folder in memory."""
    with tempfile.TemporaryDirectory(dir=copies.SHARED_MEMORY) as memory:
        environ = {**os.environ, progress.VARIABLE: f"0:{memory}/progress-1"}
        command = [sys.executable, "-m", "benchmarks.gpu.copies", str(megabytes)]
        done = subprocess.run(command, env=environ, cwd=copies.ROOT, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(megabytes: int) -> int:
    """Measure in this process, and print one line of JSON."""
    device = take(chosen())
    with tempfile.TemporaryDirectory() as folder:
        times = _stalls(Path(folder), megabytes, device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    print(json.dumps({"device": name, "megabytes": megabytes, "seconds": times}))
    return 0


def _stalls(folder: Path, megabytes: int, device: torch.device) -> copies.Times:
    network = model.network(megabytes).to(device)
    state = ElasticState(folder / "checkpoints", model=network, optimizer=model.optimizer(network))
    width = next(network.parameters()).shape[1]
    network(torch.randn(1, width, device=device)).square().mean().backward()
    state.optimizer.step()
    state.optimizer.zero_grad()
    times: copies.Times = {FIRST: [], SNAPSHOT: [], TORCH: []}
    for number in range(copies.TURNS + SAVES):
        state.step += 1
        kind = FIRST if number < copies.TURNS else SNAPSHOT
        times[kind].append(_seconds(device, partial(state.snapshot, durable=True)))
        state.wait()
        if kind == SNAPSHOT:
            save = partial(copies.torch_save, folder / "saved", state, synced=False)
            times[TORCH].append(_seconds(device, save))
    return times


def _seconds(device: torch.device, action: Callable[[], object]) -> float:
    settle(device)
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
