"""The time that a snapshot and a restore of a large state take one worker, beside ``torch.save`` and the disk.

python -m benchmarks.training.copies save|restore FOLDER MEGABYTES    one part, in this process
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.training import model
from benchmarks.training.labels import (
    BESIDE,
    COLD,
    FIRST,
    MEMORY,
    OVERLAP,
    RESTORE_KINDS,
    SAVE_KINDS,
    SNAPSHOT,
    TORCH,
    TORCH_SYNCED,
    WARM,
)
from elastic_infra.launcher.workers import progress
from elastic_infra.training import ElasticState

ROOT: Final = Path(__file__).parents[2]
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  a new private folder in it
TURNS: Final = 2
"""Snapshots in memory, written in turn: the first of each turn also makes the memory."""
SAVES: Final = 5
SAMPLES: Final = 64
"""Of a step beside which a snapshot is copied: so many that it computes for longer than the copy takes."""
Times = dict[str, list[float]]
"""Seconds of each repetition, by what was done."""


def measured(megabytes: int, restores: int) -> tuple[Times, Times]:
    """Saves and restores of a state of so many megabytes, each restore in a fresh process."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as memory:
        launched = {progress.VARIABLE: f"0:{memory}/progress-1"}
        saves: Times = _in_process("save", folder, megabytes, launched)
        found: Times = {kind: [] for kind in RESTORE_KINDS}
        for _ in range(restores):
            for kind in (COLD, WARM, MEMORY):
                if kind == COLD:
                    drop_cache(Path(folder))
                restored = _in_process("restore", folder, megabytes, launched if kind == MEMORY else {})
                _check(restored["source"], kind)
                found[kind].append(restored["seconds"])
    return saves, found


def save(folder: Path, megabytes: int) -> Times:
    """The time for which training waits, each kind of save in turn; the last snapshot stays in memory and on disk."""
    state = _state(folder, megabytes)
    model.loss(state.model).backward()
    state.optimizer.step()
    state.optimizer.zero_grad()
    times: Times = {kind: [] for kind in SAVE_KINDS}
    for number in range(TURNS + SAVES):
        state.step += 1
        kind = FIRST if number < TURNS else SNAPSHOT
        times[kind].append(_seconds(partial(state.snapshot, durable=True)))
        state.wait()
        if kind == SNAPSHOT:
            for name, synced in ((TORCH, False), (TORCH_SYNCED, True)):
                os.sync()
                times[name].append(_seconds(partial(torch_save, folder / "saved", state, synced=synced)))
    times[OVERLAP], times[BESIDE] = _overlapped(state)
    return times


def _overlapped(state: ElasticState) -> tuple[list[float], list[float]]:
    """The time for which training waits for a snapshot with ``overlap``, and by which computing beside it is longer."""
    waited, alone, beside = [], [], []
    for number in range(TURNS + SAVES):
        alone.append(_seconds(partial(_compute, state)))
        state.step += 1
        begun = _seconds(partial(state.snapshot, overlap=True))
        beside.append(_seconds(partial(_compute, state)))
        ended = _seconds(state.end_copy)
        if number >= TURNS:
            waited.append(begun + ended)
    usual = statistics.median(alone)
    return waited, [seconds - usual for seconds in beside[TURNS:]]


def _compute(state: ElasticState) -> None:
    """One forward and one backward pass, which leaves the gradients in the parameters."""
    model.loss(state.model, SAMPLES).backward()
    state.optimizer.zero_grad()


def torch_save(path: Path, state: ElasticState, *, synced: bool) -> None:
    """Save model and optimizer as scripts do."""
    with path.open("wb") as file:
        torch.save({"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}, file)
        if synced:
            file.flush()
            os.fsync(file.fileno())


def restore(folder: Path, megabytes: int) -> dict[str, Any]:
    """The time of a restore in a process whose model and optimizer have just been built, and its source."""
    state = _state(folder, megabytes)
    begin = time.monotonic()
    restored = state.restore()
    return {"seconds": time.monotonic() - begin, "source": restored.source}


def drop_cache(folder: Path) -> None:
    """Have the kernel forget the pages of all files, which are on disk; needs no rights."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _check(source: str, kind: str) -> None:
    expected = "memory" if kind == MEMORY else "disk"
    if source != expected:
        message = f"restored from {source}, not from {expected}"
        raise RuntimeError(message)


def _state(folder: Path, megabytes: int) -> ElasticState:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = model.network(megabytes)
    return ElasticState(folder / "checkpoints", model=network, optimizer=model.optimizer(network))


def _seconds(action: Callable[[], object]) -> float:
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def _in_process(part: str, folder: str, megabytes: int, environ: Mapping[str, str]) -> Any:  # noqa: ANN401  JSON
    command = [sys.executable, "-m", "benchmarks.training.copies", part, folder, str(megabytes)]
    done = subprocess.run(command, env={**os.environ, **environ}, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(part: str, folder: str, megabytes: str) -> int:
    """Measure one part and print its times."""
    measure = {"save": save, "restore": restore}[part]
    print(json.dumps(measure(Path(folder), int(megabytes))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
