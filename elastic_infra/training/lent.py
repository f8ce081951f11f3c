"""Has members take values that lie in the node's memory, without keeping any of it.

Later snapshots overwrite that memory, in which a restore finds the state. Members keep what they are given, where they
need not convert it: moments on the CPU, an optimizer's counter of steps on any device, a replay buffer.
"""

from __future__ import annotations

from typing import Any

import torch

from .host_memory import Tree
from .shards import is_sharded


def load(member: Any, saved: Tree) -> None:  # noqa: ANN401  a member
    """Load a member's ``state_dict`` that lies in the node's memory."""
    if isinstance(member, torch.optim.Optimizer):
        member.load_state_dict(saved)
        # Not before: what belongs on a device is there now, and was not copied in host memory on its way.
        for owner, values in member.state.items():
            member.state[owner] = copied(values)
    elif isinstance(member, torch.nn.Module):
        own = _copied_by(member)
        member.load_state_dict({name: value if name in own else copied(value) for name, value in saved.items()})
    else:
        member.load_state_dict(copied(saved))


def copied(value: Tree) -> Tree:
    """The values with copies of all tensors in host memory; those of shards were copied when they were assembled."""
    if isinstance(value, torch.Tensor):
        return value if value.device.type != "cpu" or is_sharded(value) else value.clone()
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value


def _copied_by(module: torch.nn.Module) -> set[str]:
    """Names of what a module copies itself; it may keep the rest of its ``state_dict``, as metrics do."""
    found = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return {name for named in found for name, _ in named}
