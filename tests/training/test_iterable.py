"""Every sample of a stream exactly once an epoch, the same batches for any number of workers, and a weighted rest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from elastic_infra.training import Elastic, ElasticIterable, ElasticState
from elastic_infra.training.iterable import Share


class Numbers(IterableDataset):  # type: ignore[misc]  # torch's types are not read
    """The numbers of an epoch, which differ from those of other epochs; it cannot be taken up in the middle."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epoch = 0
        self.read = 0

    def set_epoch(self, epoch: int) -> None:
        """Another epoch has other numbers."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            self.read += 1
            yield 1000 * self.epoch + number


class Stateful(Numbers):
    """The same numbers from its own position on, which it holds itself."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.read += 1
            self.at += 1
            yield 1000 * self.epoch + self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        """How many samples were read."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after so many samples."""
        self.at = state["at"]


def generation(data: ElasticIterable, rank: int, world: int, steps: int) -> list[list[Share]]:
    """The shares of one worker in so many steps, after which its position is there."""
    with mock.patch.dict(os.environ, {"RANK": str(rank), "WORLD_SIZE": str(world)}):
        batches = iter(data)
        found = []
        for _ in range(steps):
            found.append(
                [Share(batch, weight, is_last, data.position) for batch, weight, is_last in data.parts(batches)]
            )
            data.advance()
        return found


def stream(length: int, global_batch: int, steps: int) -> list[list[int]]:
    """The global batches of an undisturbed run."""
    found: list[list[int]] = []
    epoch = 0
    while len(found) < steps:
        found += [
            [1000 * epoch + each for each in range(begin, min(begin + global_batch, length))]
            for begin in range(0, length, global_batch)
        ]
        epoch += 1
    return found[:steps]


@pytest.mark.parametrize("source", [Numbers, Stateful])
@settings(max_examples=300)
@given(
    length=st.integers(1, 40),
    global_batch=st.integers(1, 25),
    micro_batch=st.none() | st.integers(1, 9),
    history=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=6),
)
def test_exactly_once_whatever_the_membership(
    source: type[Numbers],
    length: int,
    global_batch: int,
    micro_batch: int | None,
    history: list[tuple[int, int, int]],
) -> None:
    """Through any history of sizes, with steps lost and repeated, the batches are those of an undisturbed run."""
    sizes: dict[str, Any] = {"global_batch": global_batch, "micro_batch": micro_batch, "collate": list}
    survivor = ElasticIterable(source(length), **sizes)  # one worker lives through all generations
    done: list[list[int]] = []
    state = survivor.state_dict()
    for world, steps, lost in history:  # one generation: so many steps, of which the last ones are lost
        ranks = [survivor, *(ElasticIterable(source(length), **sizes) for _ in range(world - 1))]
        kept = max(0, steps - lost)
        shares, after = [], []
        for rank, data in enumerate(ranks):
            data.load_state_dict(state)
            shares.append(generation(data, rank, world, kept))
            after.append(data.state_dict())
            shares[-1] += generation(data, rank, world, steps - kept)
        assert all(each == after[0] for each in after), "rank 0's position is that of all"
        for step in range(steps):
            taken = [shares[rank][step] for rank in range(world)]
            assert len({len(each) for each in taken}) == 1, "all ranks meet in the same collectives"
            assert sum(share.weight for each in taken for share in each) * len(taken[0]) > 0
            if step < kept:
                done.append(sorted(one for each in taken for share in each if share.weight for one in share.batch))
        state = after[0]

    assert done == stream(length, global_batch, len(done))
    assert state["samples"] == sum(map(len, done))


@pytest.mark.parametrize(("source", "read"), [(Numbers, 12), (Stateful, 4)])
def test_only_a_stream_without_a_state_is_read_from_its_beginning(source: type[Numbers], read: int) -> None:
    """What is done is skipped, or not even read."""
    before = ElasticIterable(source(20), global_batch=4, collate=list)
    generation(before, 0, 1, 2)
    data = ElasticIterable(source(20), global_batch=4, collate=list)
    data.load_state_dict(json.loads(json.dumps(before.state_dict())))

    assert generation(data, 0, 1, 1)[0][0].batch == [8, 9, 10, 11]
    assert data.dataset.read == read


def test_the_loop_trains_on_it_and_goes_on(tmp_path: Path) -> None:
    """Through a DataLoader, whose batches are tensors; a second run begins behind the samples of the first."""
    seen = []
    for until in (3, 5):
        data = ElasticIterable(Numbers(10), global_batch=4, micro_batch=3)
        state = ElasticState(tmp_path, model=torch.nn.Linear(1, 1), data=data)
        for _, micro in (elastic := Elastic(state, DataLoader(data, batch_size=None))).steps(until):
            with elastic.step():
                seen.append([batch.tolist() for batch, sync in micro])
        state.snapshot(durable=True)
        state.wait()

    assert seen == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[8, 9]],
        [[1000, 1001], [1002, 1003]],
        [[1004, 1005], [1006, 1007]],
    ]
    assert data.samples == 18


def test_a_stream_with_workers_of_its_own() -> None:
    """They share the stream as it says, in an order that is always the same."""
    data = ElasticIterable(DataLoader(Numbers(6), batch_size=None, num_workers=1), global_batch=4, collate=list)

    assert [share.batch for step in generation(data, 0, 1, 2) for share in step] == [[0, 1, 2, 3], [4, 5]]


def test_workers_around_it_are_refused() -> None:
    """Each would read the whole stream; the message says where they belong."""
    loader = DataLoader(ElasticIterable(Numbers(6), global_batch=4), batch_size=None, num_workers=1)

    with pytest.raises(RuntimeError, match="Give the workers to the stream instead"):
        next(iter(loader))


def test_a_loader_that_makes_batches_itself_is_refused(tmp_path: Path) -> None:
    """As is a step that takes no batches: the position would not be known."""
    data = ElasticIterable(Numbers(6), global_batch=4)
    state = ElasticState(tmp_path, model=torch.nn.Linear(1, 1), data=data)

    for _, micro in (elastic := Elastic(state, Numbers(6))).steps(1):
        with pytest.raises(TypeError, match="batch_size=None"), elastic.step():
            next(micro)
        break
    with pytest.raises(RuntimeError, match="did not take its batches"):
        Elastic(state).run(lambda _: None, until=1)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_dataset_of_a_loader_hears_of_the_epoch(workers: int) -> None:
    """A DataLoader hands nothing on, so that all epochs would be the first one."""
    data = ElasticIterable(DataLoader(Numbers(2), batch_size=None, num_workers=workers), global_batch=2, collate=list)

    assert [share.batch for step in generation(data, 0, 1, 2) for share in step] == [[0, 1], [1000, 1001]]


def test_an_iterator_is_refused() -> None:
    """What was read and not trained on would be lost with the first change of nodes, unless it has a state."""
    with pytest.raises(TypeError, match=r"\(list_iterator\) is an iterator, which can be read only once"):
        ElasticIterable(iter([1, 2]), global_batch=2)


class Once:
    """What an iterator gives, in something that looks as if it could be read again."""

    def __init__(self) -> None:
        self._numbers = iter([1, 2])

    def __iter__(self) -> Iterator[int]:
        return self._numbers


@pytest.mark.parametrize(("stream", "epoch"), [([], 0), (Once(), 1)])
def test_a_stream_that_yields_nothing_is_named(stream: Any, epoch: int) -> None:
    """What can be read only once has no second epoch."""
    with pytest.raises(ValueError, match=f"no samples in epoch {epoch}"):
        generation(ElasticIterable(stream, global_batch=2), 0, 1, 2)


def test_a_position_behind_the_end_is_another_stream() -> None:
    """Samples would be seen twice or never."""
    data = ElasticIterable(Numbers(6), global_batch=4)
    data.load_state_dict({"epoch": 0, "offset": 8, "samples": 8, "source": None})

    with pytest.raises(ValueError, match="8 samples in epoch 0: it is another one"):
        generation(data, 0, 1, 1)


@pytest.mark.parametrize("given", [{"global_batch": 0}, {"global_batch": 1, "micro_batch": 0}])
def test_impossible_sizes_are_refused(given: dict[str, Any]) -> None:
    """A batch has some samples."""
    with pytest.raises(ValueError, match="must be 1 or more"):
        ElasticIterable([1], **given)
