"""A training whose weights tell every sample that was ever trained on: the loss is linear in the weights.

The gradient does not depend on the weights, so a sample that is lost or counted twice leaves its mark for good, where a
training that converges would forget it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import torch
from torch import nn
from torch.utils.data import TensorDataset

from elastic_infra.training import ElasticSampler

SAMPLES: Final = 50
GLOBAL_BATCH: Final = 12
PARTS: Final = 4
"""Parameters, each in a bucket of its own, so that gradients are under way while others are computed."""
WIDTH: Final = 3


class Linear(nn.Module):  # type: ignore[misc]  # torch is not read by mypy
    """The sum of a few linear layers, each of its own part of the sample."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, 1, bias=False, dtype=torch.float64) for _ in range(PARTS))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """One number for each sample."""
        given = inputs.split(WIDTH, dim=1)
        return sum((part(mine) for part, mine in zip(self.parts, given, strict=True)), torch.zeros(()))


class Rows(nn.Module):  # type: ignore[misc]  # torch is not read by mypy
    """The same layer with a row for each number of its input, so that several ranks have a shard of it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().t().clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """One number for each sample."""
        return inputs @ self.weight


def samples() -> TensorDataset:
    """The samples, and each one's index."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, PARTS * WIDTH, dtype=torch.float64, generator=generator)
    return TensorDataset(inputs, torch.arange(SAMPLES))


def sampler(micro_batch: int | None = None) -> ElasticSampler:
    """The order of the samples."""
    return ElasticSampler(SAMPLES, global_batch=GLOBAL_BATCH, micro_batch=micro_batch)


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """With momentum: what is forgotten of it shows too."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def mark(model: nn.Module) -> float:
    """One number in which every weight has a part of its own; of a sharded model every rank must ask for it."""
    weights = _row(model.parameters())
    return float(weights @ torch.arange(1, len(weights) + 1, dtype=torch.float64).sqrt())


def digest(model: nn.Module, descent: torch.optim.Optimizer) -> str:
    """A text that is another one where a bit of a weight or of its momentum is; sharded ones as with ``mark``."""
    weights = list(model.parameters())
    momenta = [descent.state[weight]["momentum_buffer"] for weight in weights]
    return hashlib.sha256(bytes(_row([*weights, *momenta]).view(torch.uint8).tolist())).hexdigest()[:16]


def _row(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    whole = [getattr(tensor, "full_tensor", tensor.detach)() for tensor in tensors]
    return torch.cat([values.detach().flatten() for values in whole])


def undisturbed(steps: int) -> Iterator[tuple[list[int], float]]:
    """The samples and the mark of each step of one worker that is never disturbed, from step 1 on."""
    torch.manual_seed(0)
    model = Linear()
    (inputs, _), order, descent = samples().tensors, sampler(), optimizer(model)
    for _ in range(steps):
        batch = list(order.step(0, 1)[0].indices)
        model(inputs[batch]).mean().backward()
        descent.step()
        descent.zero_grad()
        order.advance()
        yield batch, mark(model)
