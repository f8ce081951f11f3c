"""What a step changes before its optimizer does, so that a step that broke can be done again.

The forward pass draws random numbers and moves the running averages of BatchNorm; a script may change plain values.
Weights and moments change in ``optimizer.step`` alone: where that was called, the step cannot be undone here.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import torch

from . import generators
from .host_memory import Tree
from .state import ElasticState

UNCOUNTED: Final = torch.nn.modules.batchnorm._NormBase  # noqa: SLF001  BatchNorm, SyncBatchNorm and InstanceNorm
"""Modules whose kernels move their averages without a count of the change."""


class StepUndo:
    """Keeps what the step under way may change; nothing but buffers that change, or may without a count, is copied."""

    def __init__(self, state: ElasticState) -> None:
        self._state = state
        self._generators: Tree = None
        self._plain: dict[str, Any] = {}
        self._buffers: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}
        """By identity: the buffer, its version when it was copied, and the copy."""
        self._versions = itertools.count(-1, -1)
        """Versions that no buffer has."""
        self._optimized = False
        for member in state.members.values():
            if isinstance(member, torch.optim.Optimizer):
                member.register_step_post_hook(self._note)

    def begin(self) -> None:
        """A step begins."""
        self._optimized = False
        self._generators = generators.capture()
        self._plain = dict(self._state.plain)
        for module in self._modules():
            for part in module.modules():
                for buffer in part.buffers(recurse=False):
                    self._copy(buffer, counted=not isinstance(part, UNCOUNTED))

    def undo(self) -> bool:
        """Put things back to where the step began; False where its optimizer has changed the state already."""
        for member in self._state.members.values():
            if isinstance(member, torch.optim.Optimizer | torch.nn.Module):
                member.zero_grad(set_to_none=True)
        generators.restore(self._generators)
        self._state.plain.update(self._plain)
        with torch.no_grad():
            for buffer, version, copy in self._buffers.values():
                if buffer._version != version:  # noqa: SLF001  torch's own counter of changes in place
                    buffer.copy_(copy)
        return not self._optimized

    def _copy(self, buffer: torch.Tensor, *, counted: bool) -> None:
        kept = self._buffers.get(id(buffer))
        version: int = buffer._version if counted else next(self._versions)  # noqa: SLF001
        if kept is None or kept[0] is not buffer:
            self._buffers[id(buffer)] = (buffer, version, buffer.detach().clone())
        elif kept[1] != version:
            kept[2].copy_(buffer.detach())
            self._buffers[id(buffer)] = (buffer, version, kept[2])

    def _modules(self) -> list[torch.nn.Module]:
        return [member for member in self._state.members.values() if isinstance(member, torch.nn.Module)]

    def _note(self, *_: object) -> None:
        self._optimized = True
