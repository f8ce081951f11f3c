"""The same training as ``train.py`` under torchft: one replica of one worker.

Usage: train_torchft.py MEGABYTES. The lighthouse's address is in TORCHFT_LIGHTHOUSE. A step that the replicas do not
commit is not done, and has no line in the journal.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torchft

from benchmarks.training import journal, model
from benchmarks.training.train import STEP_SECONDS

LONGEST = timedelta(seconds=60)


def main(megabytes: int) -> None:
    """Train until this process is killed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = model.network(megabytes)
    adam = model.optimizer(network)

    def load(state: dict[str, Any]) -> None:
        network.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    def save() -> dict[str, Any]:
        return {"model": network.state_dict(), "optimizer": adam.state_dict()}

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=LONGEST),
        load_state_dict=load,
        state_dict=save,
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
    )
    wrapped = torchft.DistributedDataParallel(manager, network)
    optimizer = torchft.Optimizer(manager, adam)
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        model.loss(wrapped).backward()
        optimizer.step()
        time.sleep(STEP_SECONDS)
        step, rank = manager.current_step(), manager.participating_rank()
        if step == before + 1 and rank is not None:
            journal.note(step, rank, manager.num_participants(), manager._quorum_id)  # noqa: SLF001  no public name


if __name__ == "__main__":
    main(int(sys.argv[1]))
