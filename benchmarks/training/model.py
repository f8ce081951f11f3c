"""A state of a wanted size with as little computation as possible: what the arms train and the copies hold."""

from __future__ import annotations

import math

import torch
from torch import nn

LAYER_BYTES = 12_000_000
"""State of one layer: its weights, and Adam's two moments of each."""
BYTES_A_WEIGHT = 12


def network(megabytes: int) -> nn.Sequential:
    """Linear layers whose weights have a state of so many megabytes, with the moments of Adam."""
    layers = max(1, megabytes * 1_000_000 // LAYER_BYTES)
    width = math.isqrt(megabytes * 1_000_000 // BYTES_A_WEIGHT // layers)
    made = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    for weight in made.parameters():
        # Values keep their size through all layers: numbers near zero (denormals) would take most of a step's time.
        nn.init.normal_(weight, std=width**-0.5)
    return made


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam that hardly moves, so that the values keep their size."""
    return torch.optim.Adam(model.parameters(), lr=1e-8)


def loss(model: nn.Module, samples: int = 1) -> torch.Tensor:
    """The loss of random samples; of one, by default, so that forward and backward read every weight once."""
    width = next(model.parameters()).shape[1]
    value: torch.Tensor = model(torch.randn(samples, width)).square().mean()
    return value
