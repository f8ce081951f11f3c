"""The data and the step of scripts that train with ``Elastic`` and write which samples every step had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.data import TensorDataset

from elastic_infra.training import Elastic, ElasticSampler


def samples(generator: torch.Generator | None = None) -> TensorDataset:
    """Fifty samples: four numbers, their sum, and the sample's index."""
    inputs = torch.randn(50, 4, dtype=torch.float64, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True), torch.arange(50))


def one_layer() -> torch.nn.Linear:
    """A model with one row."""
    return torch.nn.Linear(4, 1, dtype=torch.float64)


def two_layers() -> torch.nn.Sequential:
    """A model whose rows several ranks can share, though not evenly."""
    layers = torch.nn.Linear(4, 5, dtype=torch.float64), torch.nn.Linear(5, 1, dtype=torch.float64)
    return torch.nn.Sequential(*layers)


def train(
    elastic: Elastic,
    sampler: ElasticSampler,
    micro: Iterator[tuple[Any, AbstractContextManager[None]]],
    note: Callable[..., None],
) -> None:
    """Do one step of the state's model and optimizer; call within ``elastic.step()``.

    Args:
        elastic: the loop.
        sampler: its sampler.
        micro: the step's micro-batches.
        note: writes an event with its fields. The step is noted before the collectives, so that every rank of a
            finished step has written its samples.
    """
    members = elastic.state.members
    seen = [index for part in sampler.step() if part.weight for index in part.indices]
    note("step", step=elastic.state.step + 1, seen=seen)
    read = []
    for (data, target, index), sync in micro:
        read += index.tolist()
        with sync:
            elastic.backward(torch.nn.functional.mse_loss(members["model"](data), target))
    assert set(seen) <= set(read), "the loader gives other samples than the sampler says"
    members["optimizer"].step()
    members["optimizer"].zero_grad()
