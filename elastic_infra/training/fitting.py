"""Where a snapshot does not fit the members of a state, found before any member is changed.

``load_state_dict`` refuses missing and unknown names and other shapes of a module's tensors by itself. Not seen by it:
another type of numbers, which is converted without a word, and an optimizer's averages for other parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from .host_memory import Tree
from .shards import is_sharded

OF_PARAMETER: Final = frozenset({"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg"})
"""Values of torch's optimizers that have the shape of their parameter; other optimizers use the same names so."""


def misfits(members: Mapping[str, Any], saved: Mapping[str, Tree]) -> Iterator[str]:
    """What does not fit, a phrase each.

    Args:
        members: the members of the state, without wrappers.
        saved: the ``state_dict`` of each member in the snapshot.
    """
    yield from (f"it misses {name}" for name in sorted(members.keys() - saved.keys()))
    yield from (f"it has {name} besides" for name in sorted(saved.keys() - members.keys()))
    for name in sorted(members.keys() & saved.keys()):
        if isinstance(members[name], torch.nn.Module):
            yield from _of_module(name, members[name], saved[name])
        elif isinstance(members[name], torch.optim.Optimizer):
            yield from _of_optimizer(name, members[name], saved[name])


def _of_module(name: str, module: torch.nn.Module, saved: Mapping[str, Any]) -> Iterator[str]:
    for key, here in module.state_dict().items():
        there = saved.get(key, here)
        if is_sharded(here) and isinstance(there, torch.Tensor) and not is_sharded(there):
            yield f"{name}.{key} is whole in the snapshot and sharded here"
        elif isinstance(here, torch.Tensor) and isinstance(there, torch.Tensor) and here.dtype != there.dtype:
            yield f"{name}.{key} is {_kind(there)} in the snapshot and {_kind(here)} here"


def _of_optimizer(name: str, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> Iterator[str]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, values in saved["state"].items():
        for key in sorted(OF_PARAMETER & values.keys()):
            here, there = parameters[index : index + 1], values[key]
            if here and isinstance(there, torch.Tensor) and there.shape != here[0].shape:
                yield (
                    f"{name}: {key} of parameter {index} is {_shape(there)} in the snapshot, "
                    f"and the parameter is {_shape(here[0])} here"
                )


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "one number"
