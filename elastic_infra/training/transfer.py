"""Sends a state from the rank that has it to the ranks that lack it, over the process group; other ranks take no part.

The state goes down a binary tree, tensor by tensor, so that many newcomers take little longer than one, and no rank
needs memory beyond its own state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import torch
import torch.distributed as dist

from . import host_memory
from .host_memory import Tree

Value = TypeVar("Value")
CARRIED: Final = 64 * 2**20
"""Elements that pass through the device at once where the backend takes no tensors of the CPU: a model leaves the
device little room."""


def pass_on(tree: Tree | None, ranks: Sequence[int], group: dist.ProcessGroup | None = None) -> Tree:
    """The tree of ``ranks[0]`` on all of ``ranks``, each of which must call this function.

    Args:
        tree: the state, on the first rank; ignored on the others.
        ranks: the rank that has the state, then the ranks that lack it.
        group: the group; None is the default group.
    """
    position = list(ranks).index(dist.get_rank())
    way = _Way(ranks, position, group, _device_of(group))
    if position == 0:
        layout = host_memory.layout_of(tree)
        _pass_bytes(host_memory.header_of(layout), way)
        for tensor in layout.tensors:
            way.pass_on(tensor.detach().cpu().contiguous())
        return tree
    received = host_memory.empty(_pass_bytes(b"", way))
    for tensor in host_memory.tensors_in(received):
        way.pass_on(tensor)
    return received


def said_by_first(value: Value) -> Value:
    """Rank 0's value on all ranks, each of which must call this function."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


class _Way:
    """This rank's parent and children in the tree."""

    def __init__(
        self, ranks: Sequence[int], position: int, group: dist.ProcessGroup | None, device: torch.device | None = None
    ) -> None:
        self._group = group
        self._device = device
        """The device through which tensors pass; None where the backend takes those of the CPU."""
        above = 1 << (position.bit_length() - 1) if position else 0
        self._parent = ranks[position - above] if position else None
        self._children = []
        step = max(1, above << 1)
        while position + step < len(ranks):
            self._children.append(ranks[position + step])
            step <<= 1

    def pass_on(self, tensor: torch.Tensor) -> None:
        """Receive the tensor from the parent, and send it to the children."""
        if not tensor.numel():
            return
        if self._device is None:
            self._carry(tensor)
            return
        for part in tensor.view(-1).split(CARRIED):
            carried = part.to(self._device) if self._parent is None else torch.empty_like(part, device=self._device)
            self._carry(carried)
            if self._parent is not None:
                part.copy_(carried)

    def _carry(self, tensor: torch.Tensor) -> None:
        if self._parent is not None:
            dist.recv(tensor, self._parent, group=self._group)
        for child in self._children:
            dist.send(tensor, child, group=self._group)


def _device_of(group: dist.ProcessGroup | None) -> torch.device | None:
    kinds = [device.type for device in (group or dist.group.WORLD)._device_types]  # noqa: SLF001  torch's only list
    return None if "cpu" in kinds else torch.device(kinds[0], torch.cuda.current_device())


def _pass_bytes(data: bytes, way: _Way) -> bytes:
    size = torch.tensor([len(data)])
    way.pass_on(size)
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(int(size), dtype=torch.uint8)
    way.pass_on(text)
    return data or bytes(text.tolist())
