"""Runs the ranks of ``scripts/sharded.py``, each on a node of its own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from elastic_infra.launcher.workers.progress import VARIABLE
from tests.ports import free_port
from tests.training import forked

SCRIPT = Path(__file__).resolve().parent / "scripts" / "sharded.py"


def run(folder: Path, mesh: str, *actions: str, attempt: int = 0) -> list[dict[str, Any]]:
    """What the ranks say at their end, in the order of ranks.

    Args:
        folder: of snapshots and results; a node's memory is its folder ``node-RANK``, which a test may delete.
        mesh: the number of ranks, or for HSDP the number of copies and of shards, as ``2x3``.
        actions: what every rank does, as in the script.
        attempt: how many times the workers were started before.
    """
    ranks = math.prod(map(int, mesh.split("x")))
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    common |= {"WORLD_SIZE": str(ranks), "ELASTIC_INFRA_ATTEMPT": str(attempt), "TORCHELASTIC_RUN_ID": "job"}
    processes, forks = [], forked.context()
    for rank in range(ranks):
        (folder / f"node-{rank}").mkdir(exist_ok=True)
        environ = {**common, "RANK": str(rank), VARIABLE: f"0:{folder}/node-{rank}/progress"}
        argv = (str(SCRIPT), str(folder), str(rank), mesh, *actions)
        processes.append(forked.start(forks, argv, environ, folder / f"{rank}.log"))
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * ranks, logs(folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def logs(folder: Path) -> str:
    """What all ranks of all runs have written."""
    return "\n".join(log.read_text() for log in sorted(folder.glob("*.log")))


def assert_equal(folder: Path, first: str, second: str) -> None:
    """Two written states have the same tensors to the bit."""
    ours, theirs = (torch.load(folder / f"{name}.pt") for name in (first, second))
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
