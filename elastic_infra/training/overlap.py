"""Copies the state to the node's memory while the next step computes, and publishes no copy that is torn.

``optimizer.step`` alone changes weights and moments, if the script keeps to that rule, so their copy may last until the
first such call of any optimizer. Everything else is copied at once. A snapshot is published by the training thread,
which finds out first whether the rule was kept. Torch counts a tensor's changes in place (its version), but neither
those by ``.data``, nor those of a CUDA graph. So one number of every 64 KiB is also kept from the moment of the
snapshot and compared with the copy. A change of all numbers is always seen, one of each thousandth number of 1 GB as
good as always, and one of a few numbers is not.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .host_memory import Copy, Draft

SAMPLE_BYTES: Final = 1 << 16
"""Of so many bytes one number is compared. Smaller tensors are copied at once."""


class Overlap:
    """The snapshot in memory that is being copied, of which there is one at most.

    Args:
        warn: takes a line where a snapshot is not published.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.is_allowed = True
        """False once the script broke the rule: training then waits for the copies."""
        self.seconds = 0.0
        """Seconds for which the thread copied the last snapshot."""
        self._warn = warn
        self._unfinished: _Unfinished | None = None
        self._is_hooked = False

    def begin(self, step: int, draft: Draft, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Copy what these optimizers change in a thread, and the rest of the snapshot now."""
        self._hook()
        changed = {_place_of(tensor) for optimizer in optimizers for tensor in _changed_by(optimizer)}
        can_wait = [_can_wait(copy.source) and _place_of(copy.source) in changed for copy in draft.copies]
        self._unfinished = _Unfinished(step, draft, Copying(tuple(itertools.compress(draft.copies, can_wait))))
        for copy, waits in zip(draft.copies, can_wait, strict=True):
            if not waits:
                copy.target.copy_(copy.source)

    def end(self) -> None:
        """Wait for the copy, if there is one, and publish the snapshot unless the rule was broken."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is None:
            return
        changed = unfinished.copying.end()
        self.seconds = unfinished.copying.seconds
        if not changed:
            unfinished.draft.publish()
            return
        self.is_allowed, self.seconds = False, 0.0
        first = changed[0].removeprefix("state.state.members.")
        more = f" and {len(changed) - 1} more were" if len(changed) > 1 else " was"
        self._warn(
            f"The snapshot of step {unfinished.step} in memory is thrown away: {first}{more} changed before the "
            "next optimizer.step, so that the copy beside it is not the state of one step. From now on training waits "
            "for the copies, as without Snapshots(overlap=True)."
        )

    def _hook(self) -> None:
        """End the copy before any optimizer of the process steps. The hook stays: compiled code would be made anew."""
        if self._is_hooked:
            return
        this = weakref.ref(self)

        def end(*_: object) -> None:
            found = this()
            if found is not None and not torch.compiler.is_compiling():
                found.end()

        register_optimizer_step_pre_hook(end)
        self._is_hooked = True


class Copying:
    """A thread that copies tensors, and what must not have changed at its end."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self.seconds = 0.0
        self._copies = copies
        self._samples = [_sample(copy.source).clone() for copy in copies]
        self._versions = [_version_of(copy.source) for copy in copies]
        self._changed: list[str] | None = None
        """Names of the tensors of which the copy is not what they were; None until all are compared."""
        self._thread = threading.Thread(target=self._run, name="snapshot-copy", daemon=True)
        self._thread.start()

    def end(self) -> list[str]:
        """Wait for the thread; the names of the tensors that were changed since this object was made."""
        self._thread.join()
        if self._changed is None:
            return [copy.name for copy in self._copies]
        counted = [
            copy.name
            for copy, version in zip(self._copies, self._versions, strict=True)
            if _version_of(copy.source) != version
        ]
        return counted or self._changed

    def _run(self) -> None:
        begin = time.monotonic()
        for copy in self._copies:
            # Not `copy_`, whose threads would be as many again as those that compute. This call frees the interpreter.
            ctypes.memmove(copy.target.data_ptr(), copy.source.data_ptr(), _bytes_of(copy.source))
        self._changed = [
            copy.name
            for copy, sample in zip(self._copies, self._samples, strict=True)
            if not torch.equal(_bits(_sample(copy.target)), _bits(sample))
        ]
        self.seconds = time.monotonic() - begin


@dataclasses.dataclass(frozen=True)
class _Unfinished:
    step: int
    draft: Draft
    copying: Copying


def _changed_by(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    """What ``optimizer.step`` changes: the parameters, and their moments."""
    values = [value for state in optimizer.state.values() if isinstance(state, Mapping) for value in state.values()]
    for group in optimizer.param_groups:
        values += group["params"]
    yield from (value for value in values if isinstance(value, torch.Tensor) and _can_wait(value))


def _can_wait(tensor: torch.Tensor) -> bool:
    """Whether a thread can copy a tensor as bytes, and the copy can be compared."""
    is_plain = type(tensor) in {torch.Tensor, torch.nn.Parameter} and tensor.layout == torch.strided
    on_cpu = is_plain and tensor.device.type == "cpu"
    return on_cpu and tensor.is_contiguous() and _bytes_of(tensor) >= SAMPLE_BYTES


def _place_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor is: equal for a parameter and its entry in a ``state_dict``."""
    return tensor.data_ptr(), _bytes_of(tensor)


def _bytes_of(tensor: torch.Tensor) -> int:
    size: int = tensor.numel() * tensor.element_size()
    return size


def _version_of(tensor: torch.Tensor) -> int:
    version: int = tensor._version  # noqa: SLF001  torch's own counter of changes in place
    return version


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """One number of each ``SAMPLE_BYTES``: at no power of two, so that they are of all columns of a matrix."""
    return tensor.view(-1)[:: SAMPLE_BYTES // tensor.element_size() - 3]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The values as bytes, of which NaN equals itself."""
    return tensor.contiguous().view(torch.uint8)
