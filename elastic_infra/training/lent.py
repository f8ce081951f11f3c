"""Has members take values that lie in the node's memory, without keeping any of it.

Later snapshots overwrite that memory, in which a restore finds the state. Members keep what they are given, where they
need not convert it: moments on the CPU, an optimizer's counter of steps on any device, a replay buffer.
"""

from __future__ import annotations

from typing import Any

import torch

from .copying import Pair, copy_all
from .host_memory import Tree
from .shards import is_sharded


def load(member: Any, saved: Tree) -> None:  # noqa: ANN401  a member
    """Load a member's ``state_dict`` that lies in the node's memory."""
    if isinstance(member, torch.optim.Optimizer):
        member.load_state_dict(saved)
        # Not before: what belongs on a device is there now, and was not copied in host memory on its way.
        for owner, values in zip(member.state, copied([*member.state.values()]), strict=True):
            member.state[owner] = values
    elif isinstance(member, torch.nn.Module):
        own = _copied_by(member)
        kept = copied({name: value for name, value in saved.items() if name not in own})
        member.load_state_dict({name: kept.get(name, value) for name, value in saved.items()})
    else:
        member.load_state_dict(copied(saved))


def copied(value: Tree) -> Tree:
    """The values with copies of all tensors in host memory; those of shards were copied when they were assembled."""
    pairs: list[Pair] = []
    rooms = _with_rooms(value, pairs)
    copy_all(pairs)
    return rooms


def _with_rooms(value: Tree, pairs: list[Pair]) -> Tree:
    """The values with room in place of each tensor that is to be copied; each room and its tensor become a pair."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or is_sharded(value):
            return value
        pairs.append((room := torch.empty_like(value), value))
        return room
    if isinstance(value, dict):
        return {name: _with_rooms(item, pairs) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_rooms(item, pairs) for item in value)
    return value


def _copied_by(module: torch.nn.Module) -> set[str]:
    """Names of what a module copies itself; it may keep the rest of its ``state_dict``, as metrics do."""
    found = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return {name for named in found for name, _ in named}
