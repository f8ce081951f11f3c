"""The samples of each worker, so that a change of the number of workers changes neither order nor batch.

The order of an epoch depends only on the seed and the epoch. A global batch is the next ``global_batch`` samples of
that order, however many workers share it: each takes an equal part, in micro-batches of at most ``micro_batch``
samples, and all take the same number of micro-batches, since each ends in the same collectives. So every sample is
trained on exactly once an epoch, across restarts and changes of size, as long as the position is part of the state.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, Final

import torch

_EPOCH_PRIME: Final = 1_000_003
"""A prime that makes the orders of neighbouring seeds and epochs differ."""


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """The samples that one worker computes between two collectives."""

    indices: tuple[int, ...]
    """Indices of the samples. Where this worker has no sample left, one placeholder with ``weight`` 0: the worker must
    compute all the same, since the others' collectives wait for it."""
    weight: float
    """The factor for the mean loss over ``indices``, so that the average over all workers and micro-batches is the mean
    over the global batch: the gradients are those of one worker with the whole batch."""

    @property
    def samples(self) -> int:
        """Number of samples that count."""
        return len(self.indices) if self.weight else 0


def epoch_order(length: int, seed: int, epoch: int, *, shuffle: bool = True) -> Sequence[int]:
    """The order of one epoch; the same for any number of workers and on any machine."""
    if not shuffle:
        return range(length)
    generator = torch.Generator().manual_seed(seed * _EPOCH_PRIME + epoch)
    order: list[int] = torch.randperm(length, generator=generator).tolist()
    return order


def micro_batches(batch: Sequence[int], rank: int, world: int, micro_batch: int | None) -> tuple[MicroBatch, ...]:
    """This worker's part of a global batch.

    Args:
        batch: the global batch, in its order.
        rank: rank of this worker.
        world: number of workers.
        micro_batch: the most samples that a worker computes at once; None: the worker's whole part.
    """
    largest = -(-len(batch) // world)
    number = -(-largest // micro_batch) if micro_batch else 1
    mine = _part(batch, rank, world)
    return tuple(_weighed(_part(mine, turn, number), batch, world) for turn in range(number))


def _part(items: Sequence[int], index: int, parts: int) -> Sequence[int]:
    """Part ``index`` of ``parts``: consecutive items; the first parts may be one item longer than the others."""
    size, longer = divmod(len(items), parts)
    begin = index * size + min(index, longer)
    return items[begin : begin + size + (index < longer)]


def _weighed(part: Sequence[int], batch: Sequence[int], world: int) -> MicroBatch:
    if not part:
        return MicroBatch((batch[0],), 0.0)
    return MicroBatch(tuple(part), len(part) * world / len(batch))


class ElasticSampler:
    """The micro-batches of this worker, from the training's position; a ``batch_sampler`` for torch's ``DataLoader``.

    Iteration begins at the position and continues through epochs without end. A ``DataLoader`` reads ahead, so the
    position moves only with ``advance``, once a step is done: ``Elastic`` calls it.

    Args:
        dataset: the dataset, or its number of samples.
        global_batch: number of samples of one step, over all workers; the last step of an epoch may have fewer.
        seed: seed of the order; 0 by default, so that two runs see the same order unless a script changes it.
        micro_batch: the most samples that a worker computes at once. None: the worker's whole part of the global batch.
        shuffle: True, the default: a new order every epoch; False: the dataset's order.

    Raises:
        ValueError: the dataset is empty, or a batch size is less than 1.
    """

    def __init__(
        self,
        dataset: Sized | int,
        *,
        global_batch: int,
        seed: int = 0,
        micro_batch: int | None = None,
        shuffle: bool = True,
    ) -> None:
        self.length = dataset if isinstance(dataset, int) else len(dataset)
        if self.length < 1:
            message = "The dataset has no samples."
            raise ValueError(message)
        if global_batch < 1 or (micro_batch is not None and micro_batch < 1):
            message = f"global_batch ({global_batch}) and micro_batch ({micro_batch}) must be 1 or more."
            raise ValueError(message)
        self.global_batch = global_batch
        self.seed = seed
        self.micro_batch = micro_batch
        self.shuffle = shuffle
        self.epoch = 0
        self.offset = 0
        """Number of samples of this epoch that are done."""
        self._order: tuple[int, Sequence[int]] | None = None

    def advance(self) -> None:
        """Move the position by a global batch, after a step."""
        self.epoch, self.offset = self._after(self.epoch, self.offset)

    @property
    def samples(self) -> int:
        """Number of samples that are done, over all epochs."""
        return self.epoch * self.length + self.offset

    def parts(self, batches: Iterator[Any]) -> Iterator[tuple[Any, float, bool]]:
        """The batches of the step at the position, each with its weight and whether it is the last one.

        Args:
            batches: what a loader makes of the indices.
        """
        plan = self.step()
        for number, micro in enumerate(plan, 1):
            yield next(batches), micro.weight, number == len(plan)

    def step(self, rank: int | None = None, world: int | None = None) -> tuple[MicroBatch, ...]:
        """This worker's part of the step at the position.

        Args:
            rank: rank of the worker; None: ``RANK``, or 0 without it.
            world: number of workers; None: ``WORLD_SIZE``, or 1 without it.

        Returns:
            The worker's micro-batches; equally many for every rank.
        """
        return micro_batches(self._batch(self.epoch, self.offset), *place(rank, world), self.micro_batch)

    def __iter__(self) -> Iterator[list[int]]:
        """Indices of one micro-batch after the other, from the position on."""
        epoch, offset = self.epoch, self.offset
        rank, world = place(None, None)
        while True:
            for micro in micro_batches(self._batch(epoch, offset), rank, world, self.micro_batch):
                yield list(micro.indices)
            epoch, offset = self._after(epoch, offset)

    def state_dict(self) -> dict[str, int]:
        """The position: epoch, offset and what identifies the order; it does not depend on the number of workers."""
        return {"epoch": self.epoch, "offset": self.offset, "seed": self.seed, "length": self.length}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the position.

        Raises:
            ValueError: the position belongs to another seed or to a dataset of another length, so that the orders
            differ and samples would be seen twice or never.
        """
        for name, mine in (("seed", self.seed), ("length", self.length)):
            if state[name] != mine:
                message = (
                    f"The position was saved with {name} {state[name]}; this sampler has {mine} and another order."
                )
                raise ValueError(message)
        self.epoch, self.offset = int(state["epoch"]), int(state["offset"])

    def _batch(self, epoch: int, offset: int) -> Sequence[int]:
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, epoch_order(self.length, self.seed, epoch, shuffle=self.shuffle))
        return self._order[1][offset : offset + self.global_batch]

    def _after(self, epoch: int, offset: int) -> tuple[int, int]:
        offset += self.global_batch
        return (epoch, offset) if offset < self.length else (epoch + 1, 0)


def place(rank: int | None, world: int | None) -> tuple[int, int]:
    """This worker's rank and the world size, from torchrun's variables; (0, 1) without them."""
    if rank is None or world is None:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    return rank, world
