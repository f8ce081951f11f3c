"""NCCL's communicator of a process group: how a thread frees another one, and the device, from a collective.

NCCL's kernels wait on the device for a peer that is gone. Torch's newer NCCL backend revokes a communicator that is
aborted: its kernels end, without an error and without results, and the process lives on. So the results of a step count
only once the device has done its collectives and none of them was revoked. Written after torch 2.15's sources
(``c10d/nccl2``), and tested on one GPU that several ranks shared.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
import torch.distributed as dist

from .console import warn
from .waits import Waits


class Communicator:
    """The communicator of the default group."""

    garbles = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while the communicator is aborted, which must not be while another one is made."""
        self._stands = False

    @property
    def has_failed(self) -> bool:
        """Whether it was revoked, or NCCL told of an error or torch of a timeout."""
        group = dist.group.WORLD
        error = group._get_backend(group._device_types[0]).get_error()  # noqa: SLF001  torch has no public way
        return str(error.name) != "SUCCESS"

    @contextlib.contextmanager
    def making(self, size: int) -> Iterator[None]:
        """No communicator stands while one is made: only the timeout ends that."""
        del size
        with self._lock:
            self._stands = False
        yield
        with self._lock:
            self._stands = True

    def settling(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is held back: the communicator is set up by now."""
        return contextlib.nullcontext()

    def forget(self) -> None:
        """Nothing: torch ends the communicator as it makes the next one."""

    def cut(self) -> int:
        """Revoke the communicator where one stands; returns their number."""
        with self._lock:
            if not self._stands:
                return 0
            self._stands = False  # one that is revoked is not revoked again
            try:
                dist.group.WORLD.abort()
            except RuntimeError as error:
                # This thread hears the agent, so it must live on.
                what = str(error).partition("\n")[0].removesuffix(".")
                warn(f"NCCL's communicator cannot be revoked: {what}. The launcher replaces this worker.")
            return 1

    def left_waiting(self) -> Waits:
        """None: how threads wait for NCCL is not known here."""
        return ()

    def confirm(self) -> None:
        """Wait until the device has done all that it was given."""
        torch.cuda.synchronize()
