"""Undoes the changes of a step before its optimizer, so that a broken step can be repeated.

The forward pass draws random numbers and moves the running averages of BatchNorm; a script may change plain values.
Weights and moments change only in ``optimizer.step``, after whose call the step cannot be undone. On a device that call
queues work behind that of the collectives, so these are confirmed before the call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
)

from . import generators
from .state import ElasticState

UNCOUNTED: Final = torch.nn.modules.batchnorm._NormBase  # noqa: SLF001  BatchNorm, SyncBatchNorm and InstanceNorm
"""Modules whose kernels change their averages without counting the change in the tensor's version."""


class StepUndo:
    """Holds the values that the current step may change; buffers that cannot have changed are not copied again."""

    def __init__(self, state: ElasticState, confirm: Callable[[], None] = lambda: None) -> None:
        self._state = state
        self._confirm = confirm
        """Waits for the collectives of the step, and raises where their results mean nothing."""
        self._generators = generators.Held()
        self._plain: dict[str, Any] = {}
        self._buffers: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}
        """By the buffer's identity: the buffer, its version when it was copied, and the copy."""
        self._versions = itertools.count(-1, -1)
        """A source of version numbers that no buffer has."""
        self._optimized = False
        self._found: tuple[list[torch.nn.Module], list[torch.nn.Module]] | None = None
        """The members that are modules, and their parts with buffers: a search takes milliseconds in a large model."""
        register_module_module_registration_hook(self._forget_parts)
        register_module_buffer_registration_hook(self._forget_parts)
        for member in state.members.values():
            if isinstance(member, torch.optim.Optimizer):
                member.register_step_pre_hook(self._before_optimizer)
                member.register_step_post_hook(self._note)

    def begin(self) -> None:
        """Note the values at the beginning of a step."""
        self._optimized = False
        self._generators.hold()
        self._plain = dict(self._state.plain)
        for part in self._parts():
            # Not `part.buffers()`, which takes three times as long, in every step.
            for buffer in part._buffers.values():  # noqa: SLF001
                if buffer is not None:
                    self._copy(buffer, counted=not isinstance(part, UNCOUNTED))

    def confirm(self) -> None:
        """At the end of a step: its collectives are waited for, unless they were before the optimizer."""
        if not self._optimized:
            self._confirm()

    def undo(self) -> bool:
        """Restore the values from the beginning of the step; False where the optimizer has stepped already."""
        for member in self._state.members.values():
            if isinstance(member, torch.optim.Optimizer | torch.nn.Module):
                member.zero_grad(set_to_none=True)
        self._generators.set_back()
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

    def _parts(self) -> list[torch.nn.Module]:
        """The modules with buffers, looked for again where any module of the process got a part or a buffer."""
        modules = [member for member in self._state.members.values() if isinstance(member, torch.nn.Module)]
        if self._found is None or self._found[0] != modules:
            found = [part for module in modules for part in module.modules() if part._buffers]  # noqa: SLF001
            self._found = (modules, found)
        return self._found[1]

    def _forget_parts(self, *_: object) -> None:
        self._found = None

    def _before_optimizer(self, *_: object) -> None:
        self._confirm()

    def _note(self, *_: object) -> None:
        self._optimized = True
