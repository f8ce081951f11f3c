"""A stream that torchdata's loader reads with workers, from its own state, at any number of workers of the training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from torch.utils.data import IterableDataset, get_worker_info

from elastic_infra.training import ElasticIterable, ElasticState

StatefulDataLoader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*set_vital.*:UserWarning"),  # torchdata calls it, as torch did
]


class Numbers(IterableDataset):  # type: ignore[misc]  # torch's types are not read
    """Twenty numbers, of which each worker of the loader has its own."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        mine = range(20)[worker.id :: worker.num_workers] if worker else range(20)
        while self.at < len(mine):
            self.at += 1
            yield mine[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_goes_on_from_its_own_state(tmp_path: Path, workers: int) -> None:
    """Through snapshots on disk and worlds of 1, 2 and 3: every number once an epoch, in batches of six."""
    done = []
    for world, steps in ((1, 2), (2, 1), (3, 3), (1, 2)):
        for rank in reversed(range(world)):  # rank 0 saves, and the others have read the snapshot before
            source = StatefulDataLoader(Numbers(), batch_size=None, num_workers=workers)
            data = ElasticIterable(source, global_batch=6, collate=list)
            state = ElasticState(tmp_path, data=data)
            state.restore()
            with mock.patch.dict(os.environ, {"RANK": str(rank), "WORLD_SIZE": str(world)}):
                batches = iter(data)
                for _ in range(steps):
                    done += [one for batch, weight, _ in data.parts(batches) if weight for one in batch]
                    data.advance()
        state.step += steps
        state.snapshot(durable=True)
        state.wait()

    assert sorted(done) == sorted([*range(20), *range(20)])
