"""Every sample exactly once an epoch, the same batches for any number of workers, and gradients of the whole batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_infra.training.sampler import ElasticSampler, MicroBatch, epoch_order, micro_batches


def counted(parts: list[tuple[MicroBatch, ...]]) -> list[int]:
    """The samples of all workers that count."""
    return [index for part in parts for micro in part if micro.weight for index in micro.indices]


WORLDS = st.integers(1, 17)
MICRO = st.none() | st.integers(1, 9)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200, unique=True), WORLDS, MICRO)
def test_a_global_batch_is_shared_exactly(batch: list[int], world: int, micro_batch: int | None) -> None:
    """All workers together have each sample once; all compute the same number of micro-batches, none too large."""
    parts = [micro_batches(batch, rank, world, micro_batch) for rank in range(world)]

    assert sorted(counted(parts)) == sorted(batch)
    assert len({len(part) for part in parts}) == 1
    assert all(0 < len(micro.indices) <= (micro_batch or len(batch)) for part in parts for micro in part)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=100), WORLDS, MICRO)
def test_weights_give_the_mean_over_the_global_batch(values: list[float], world: int, micro_batch: int | None) -> None:
    """Averaged over workers, as DistributedDataParallel does, weighted means are the mean of the whole batch."""
    parts = [micro_batches(range(len(values)), rank, world, micro_batch) for rank in range(world)]
    total = sum(
        micro.weight * sum(values[index] for index in micro.indices) / len(micro.indices)
        for part in parts
        for micro in part
    )

    assert total / world == pytest.approx(sum(values) / len(values), abs=1e-9)


@settings(max_examples=1000)
@given(
    length=st.integers(1, 60),
    global_batch=st.integers(1, 25),
    micro_batch=MICRO,
    history=st.lists(st.tuples(WORLDS, st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=8),
)
def test_exactly_once_whatever_the_membership(
    length: int, global_batch: int, micro_batch: int | None, history: list[tuple[int, int, int]]
) -> None:
    """Through any history of sizes, with steps lost and repeated, the batches are those of an undisturbed run."""
    undisturbed = ElasticSampler(length, global_batch=global_batch, micro_batch=micro_batch)
    expected: list[list[int]] = []
    done: list[list[int]] = []
    state = undisturbed.state_dict()
    for world, steps, lost in history:  # one generation: so many steps, of which the last ones are lost
        sampler = ElasticSampler(length, global_batch=global_batch, micro_batch=micro_batch)
        sampler.load_state_dict(state)
        for step in range(steps):
            parts = [sampler.step(rank, world) for rank in range(world)]
            sampler.advance()
            if step < steps - lost:
                done.append(
                    sorted(index for part in parts for micro in part if micro.weight for index in micro.indices)
                )
                state = sampler.state_dict()
    for _ in done:
        expected.append(sorted(index for micro in undisturbed.step(0, 1) for index in micro.indices))
        undisturbed.advance()

    assert done == expected
    seen = Counter(index for batch in done for index in batch)
    assert not seen or max(seen.values()) - min(seen[index] for index in range(length)) <= 1


def test_the_loader_gets_the_micro_batches_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterating, as a DataLoader does ahead of training, gives the steps' micro-batches over the end of an epoch."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    sampler = ElasticSampler(10, global_batch=4, micro_batch=1)
    ahead = iter(sampler)
    read = [next(ahead) for _ in range(2 * 3)]

    assert (sampler.epoch, sampler.offset) == (0, 0)
    steps = []
    for _ in range(4):
        steps += [list(micro.indices) for micro in sampler.step()]
        sampler.advance()
    assert read == steps[: len(read)]


def test_orders_differ_between_epochs_and_seeds_and_nothing_else() -> None:
    """The order is a permutation that depends on seed and epoch alone."""
    assert sorted(epoch_order(100, 1, 2)) == list(range(100))
    assert epoch_order(100, 1, 2) == epoch_order(100, 1, 2)
    assert len({tuple(epoch_order(100, seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9
    assert list(epoch_order(5, 0, 3, shuffle=False)) == [0, 1, 2, 3, 4]


def test_a_worker_without_samples_computes_one_that_does_not_count() -> None:
    """Its collectives are the others' too."""
    assert micro_batches([7, 8], 2, 3, None) == (MicroBatch((7,), 0.0),)


@pytest.mark.parametrize(("name", "value"), [("seed", 5), ("length", 11)])
def test_a_position_in_another_order_is_refused(name: str, value: int) -> None:
    """Going on there would train on samples twice or never."""
    state = {**ElasticSampler(10, global_batch=2).state_dict(), name: value}

    with pytest.raises(ValueError, match=f"{name} {value}"):
        ElasticSampler(10, global_batch=2).load_state_dict(state)


@pytest.mark.parametrize("given", [{"dataset": 0, "global_batch": 1}, {"dataset": 1, "global_batch": 0},
                                   {"dataset": 1, "global_batch": 1, "micro_batch": 0}])  # fmt: skip
def test_impossible_sizes_are_refused(given: dict[str, Any]) -> None:
    """A dataset has samples, and a batch has some of them."""
    with pytest.raises(ValueError, match=r"no samples|must be 1 or more"):
        ElasticSampler(**given)
