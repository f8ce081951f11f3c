"""Sees a step's effects outside of the step, where they are lost or made twice.

The snapshot of a step is taken at the end of ``with elastic.step()``, and a broken step is undone back to its
beginning: neither knows what the loop's body changes before or after the block. Optimizers and schedulers can be seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from .console import warn_for_job
from .state import ElasticState


class Outside:
    """Warns once where an optimizer or a scheduler steps between two steps of the loop.

    The cost of a step is a call for each optimizer and a comparison for each scheduler.
    """

    def __init__(self, state: ElasticState) -> None:
        self._state = state
        self.is_in_step = False
        """Whether the loop's body is inside of the block of a step."""
        self._is_told = False
        self._counts: dict[str, int] = {}
        """The count of each scheduler at the end of the last step; empty where no step ended since the last restore."""

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the optimizers of this process inside the block, which is the loop."""
        handle = register_optimizer_step_post_hook(self._see)
        try:
            yield
        finally:
            handle.remove()

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step: inside the block everything may change."""
        now = self._scheduled()
        for name in self._counts:
            if self._counts[name] != now[name]:
                self._tell(self._state.members[name])
        self.is_in_step = True
        try:
            yield
        finally:
            self.is_in_step = False
            self._counts = self._scheduled()

    def forget(self) -> None:
        """Take the present counts of schedulers as they are: the state was restored."""
        self._counts = {}

    def _see(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Called after each step of any optimizer of the process."""
        if self.is_in_step or self._is_told or torch.compiler.is_compiling():
            return
        if self._trains_state(optimizer):
            self._tell(optimizer)

    def _trains_state(self, optimizer: torch.optim.Optimizer) -> bool:
        modules = [member for member in self._state.members.values() if isinstance(member, torch.nn.Module)]
        ours = {id(parameter) for module in modules for parameter in module.parameters()}
        return any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"])

    def _scheduled(self) -> dict[str, int]:
        kind = torch.optim.lr_scheduler.LRScheduler
        return {name: member.last_epoch for name, member in self._state.members.items() if isinstance(member, kind)}

    def _tell(self, member: object) -> None:
        if not self._is_told:
            warn_for_job(
                f"{type(member).__name__} made a step outside of `with elastic.step():`, after step "
                f"{self._state.step}. Snapshots are taken at the end of the block, and a broken step is repeated from "
                "its beginning: a restart loses what happens outside, or does it twice. Put the whole step inside the "
                "block, or use elastic.run(train_step)."
            )
        self._is_told = True
