"""The data and the step of scripts that train with ``Elastic`` and write which samples every step had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from elastic_infra.training import Elastic, ElasticIterable, ElasticSampler
from elastic_infra.training.sampler import MicroBatch, epoch_order


def samples(generator: torch.Generator | None = None) -> TensorDataset:
    """Fifty samples: four numbers, their sum, and the sample's index."""
    inputs = torch.randn(50, 4, dtype=torch.float64, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True), torch.arange(50))


class InOrderOf(IterableDataset):  # type: ignore[misc]  # torch's types are not read
    """Gives the samples of one epoch after the other in a sampler's order."""

    def __init__(self, sampler: ElasticSampler, dataset: TensorDataset) -> None:
        self.sampler, self.dataset, self.epoch = sampler, dataset, 0

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be that of this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Each sample once, in the sampler's order of this epoch."""
        order = epoch_order(len(self.dataset), self.sampler.seed, self.epoch)
        return (self.dataset[index] for index in order)


class RecordedStream(ElasticIterable):
    """A stream of indexed samples that knows which of them a worker's step has, as a sampler does."""

    def step(self) -> tuple[MicroBatch, ...]:
        """This worker's part of the step at the position."""
        sampler = self.dataset.dataset.sampler
        sampler.epoch, sampler.offset = self.position.epoch, self.position.offset
        return tuple(sampler.step())


def stream_of(sampler: ElasticSampler, dataset: TensorDataset) -> RecordedStream:
    """The same batches as a sampler's, from a stream that is read in a process of its own."""
    stream = DataLoader(InOrderOf(sampler, dataset), batch_size=None, num_workers=1)
    return RecordedStream(stream, global_batch=sampler.global_batch, micro_batch=sampler.micro_batch)


def one_layer() -> torch.nn.Linear:
    """A model with one row."""
    return torch.nn.Linear(4, 1, dtype=torch.float64)


def two_layers() -> torch.nn.Sequential:
    """A model whose rows several ranks can share, though not evenly."""
    layers = torch.nn.Linear(4, 5, dtype=torch.float64), torch.nn.Linear(5, 1, dtype=torch.float64)
    return torch.nn.Sequential(*layers)


def train(
    elastic: Elastic,
    data: ElasticSampler | RecordedStream,
    micro: Iterator[tuple[Any, AbstractContextManager[None]]],
    note: Callable[..., None],
    model: torch.nn.Module | None = None,
) -> None:
    """Do one step of the state's model and optimizer; call within ``elastic.step()``.

    Args:
        elastic: the loop.
        data: what divides its data.
        micro: the step's micro-batches.
        note: writes an event with its fields. The step is noted before the collectives, so that every rank of a
            finished step has written its samples.
        model: computes the forward pass; None: the state's model.
    """
    members = elastic.state.members
    forward = model if model is not None else members["model"]
    seen = [index for part in data.step() if part.weight for index in part.indices]
    note("step", step=elastic.state.step + 1, seen=seen)
    read = []
    for (inputs, target, index), sync in micro:
        read += index.tolist()
        with sync:
            elastic.backward(torch.nn.functional.mse_loss(forward(inputs), target))
    assert set(seen) <= set(read), "the loader gives other samples than were said"
    members["optimizer"].step()
    members["optimizer"].zero_grad()
