"""The two ways in which a process group is made again in the same process.

``Anew`` destroys the group and makes another one, which every torch can. ``Reconfigured`` gives the same group other
members by torch's experimental ``_reconfigure``. Torch has that from 2.14 on for gloo and its newer NCCL backend, which
ends a collective without ending the process (https://github.com/pytorch/pytorch/pull/189359).
"""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

from .communicator import Communicator
from .connections import Connections
from .waits import Waits

MAKING: Final = timedelta(seconds=60)
"""Timeout for making a group once all members are present."""
REVOKES: Final = (2, 28)
"""The first NCCL that revokes a communicator, as torch's ``NcclApi.hpp`` has it."""
RELEASE_SECONDS: Final = 0.05
"""Ample for gloo's threads to free a few tensors, and short beside the end of a process."""


class Way(Protocol):
    """How the group of this process gets other members."""

    def begin(self) -> None:
        """Make the first group, whose only member is this process."""

    def leave(self) -> list[dist.ProcessGroup]:
        """Leave the group before the members of the next one meet.

        Returns:
            The groups that are over. The last reference to one waits for its collectives.
        """

    def handle(self) -> str:
        """What the other members of the next group have to know of this process."""

    def enter(self, store: dist.Store, generation: int, handles: Sequence[str], rank: int) -> None:
        """Make the group of a generation, once all members are present.

        Args:
            store: a store that all members share.
            generation: number of the generation, of which the store knows nothing yet.
            handles: those of all members, in the order of their ranks.
            rank: this process's rank.
        """


class Freeing(Protocol):
    """How a thread frees another one from the group's collectives."""

    garbles: bool
    """Whether a collective that was cut ends without an error, so that what it should have written means nothing."""

    @property
    def has_failed(self) -> bool:
        """Whether the backend knows of a failed collective."""

    def making(self, size: int) -> AbstractContextManager[None]:
        """Surrounds the making of a group of so many members."""

    def settling(self) -> AbstractContextManager[None]:
        """Surrounds the first collectives of a group."""

    def forget(self) -> None:
        """The group is about to be left."""

    def cut(self) -> int:
        """End the collectives that wait, from any thread; returns how many things were cut."""

    def left_waiting(self) -> Waits:
        """The waits in collectives that nothing ends, once all is cut; empty where the main thread is in none."""

    def confirm(self) -> None:
        """Wait until the collectives so far have ended, as far as their results need that."""


class Anew:
    """Destroys the group and makes another one."""

    def __init__(self, backend: str, timeout: timedelta | None) -> None:
        self._backend = backend
        self._timeout = timeout

    def begin(self) -> None:
        """Make the first group, whose only member is this process."""
        dist.init_process_group(self._backend, store=dist.HashStore(), rank=0, world_size=1, timeout=self._timeout)

    def leave(self) -> list[dist.ProcessGroup]:
        """Destroy the group and those within it; there is none where the last one broke while it was made."""
        left = list(dist.distributed_c10d._world.pg_map)  # noqa: SLF001  torch has no public list
        if left:
            dist.destroy_process_group()
        # Torch names groups by a count. One that broke while it was made, perhaps not on all ranks, counts as well.
        dist.distributed_c10d._world.group_count = 0  # noqa: SLF001
        return left

    def handle(self) -> str:
        """Nothing but that this process is there."""
        return "here"

    def enter(self, store: dist.Store, generation: int, handles: Sequence[str], rank: int) -> None:
        """Make another group in the store, whose keys no other generation has."""
        prefixed = dist.PrefixStore(f"generation-{generation}", store)
        dist.init_process_group(self._backend, store=prefixed, rank=rank, world_size=len(handles), timeout=MAKING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch 2.6 lacks its public successor
            dist.distributed_c10d._set_pg_timeout(self._timeout or dist.constants.default_pg_timeout)  # noqa: SLF001


class Reconfigured:
    """Keeps the group, and gives it other members."""

    def __init__(self, backend: str, timeout: timedelta | None) -> None:
        self._backend = backend
        self._timeout = timeout
        self._store = _Pointed()

    def begin(self) -> None:
        """Make the group, whose only member is this process at first."""
        self._store.target = dist.HashStore()
        dist.init_process_group(
            self._backend, store=self._store, rank=0, world_size=1, timeout=self._timeout, enable_reconfigure=True
        )
        self._become(secrets.randbits(62), [self.handle()])

    def leave(self) -> list[dist.ProcessGroup]:
        """Nothing: torch ends the old members' communication once the new ones have met."""
        return []

    def handle(self) -> str:
        """Torch's own text about this process."""
        return str(dist._get_reconfigure_handle())  # noqa: SLF001  torch has no public name for it yet

    def enter(self, store: dist.Store, generation: int, handles: Sequence[str], rank: int) -> None:
        """Have the members of the generation in the group; their order says the ranks."""
        del rank
        self._store.target = dist.PrefixStore(f"generation-{generation}", store)
        self._become(generation, handles)

    def _become(self, uuid: int, handles: Sequence[str]) -> None:
        dist._reconfigure(uuid, list(handles), timeout=MAKING).wait()  # noqa: SLF001
        world = dist.distributed_c10d._world  # noqa: SLF001
        # Torch leaves both as they were with the first member. By the count groups that are made within this one get
        # their names, which must be the same in old and new members.
        world.pg_group_ranks[dist.group.WORLD] = {rank: rank for rank in range(len(handles))}
        world.group_count = 1


class _Pointed(dist.Store):  # type: ignore[misc]  # torch's types are not read
    """A store that passes all on to another one: torch keeps the store with which a group was made first."""

    target: Any = None

    def set(self, key: str, value: str) -> None:
        self.target.set(key, value)

    def get(self, key: str) -> Any:  # noqa: ANN401  bytes, as torch gives them
        return self.target.get(key)

    def add(self, key: str, amount: int) -> Any:  # noqa: ANN401
        return self.target.add(key, amount)

    def compare_set(self, key: str, expected: str, desired: str) -> Any:  # noqa: ANN401
        return self.target.compare_set(key, expected, desired)

    def check(self, keys: list[str]) -> Any:  # noqa: ANN401
        return self.target.check(keys)

    def wait(self, keys: list[str], timeout: timedelta = MAKING) -> None:
        self.target.wait(keys, timeout)

    def delete_key(self, key: str) -> Any:  # noqa: ANN401
        return self.target.delete_key(key)


def way_of(backend: str, timeout: timedelta | None, *, experimental: bool) -> Way:
    """How groups of this backend are made again."""
    return Reconfigured(backend, timeout) if experimental else Anew(backend, timeout)


def freeing_of(backend: str) -> Freeing:
    """How a wait in a collective of this backend is ended."""
    return Connections() if backend == "gloo" else Communicator()


def release() -> None:
    """Let gloo's threads free the tensors of the collectives so far, before the script destroys the group.

    They need Python's lock for it. Torch before 2.8 holds this lock while a group that is destroyed waits for its
    threads, so that the process would never end (https://github.com/pytorch/pytorch/pull/154976).
    """
    if torch.__version__ < (2, 8):
        time.sleep(RELEASE_SECONDS)


def obstacle(backend: str, *, experimental: bool) -> str:
    """Why groups of this backend cannot be made again in place; empty where they can."""
    if backend == "gloo" and not experimental:
        return ""
    if not experimental:
        return f"The backend {backend} cannot be rebuilt in place without experimental=True."
    if not hasattr(dist, "_reconfigure"):
        return f"Torch {torch.__version__} cannot reconfigure a process group, which torch 2.14 and later can."
    lacks = _lacks(backend)
    return f"Torch {torch.__version__} cannot reconfigure the backend {backend}: {lacks}." if lacks else ""


def _lacks(backend: str) -> str:
    """What the backend lacks; asked without a group, since one of NCCL needs the device even to be destroyed."""
    if backend == "gloo":
        return ""
    if backend not in {"nccl", "nccl2"}:
        return "only gloo and nccl can be, each alone"
    if not hasattr(dist, "ProcessGroupNCCL2") or (backend == "nccl" and not _is_newer_by_default()):
        return "it is the older ProcessGroupNCCL, which ends the process"
    version = torch.cuda.nccl.version()
    if torch.version.hip or version < REVOKES:
        return f"it needs NVIDIA's NCCL {'.'.join(map(str, REVOKES))}, and finds {'.'.join(map(str, version))}"
    return ""


def _is_newer_by_default() -> bool:
    """Whether torch makes its newer backend where a script asks for ``nccl``; 2.14 has both, and the older first."""
    chosen = os.environ.get("TORCH_DIST_USE_NCCL2")
    return chosen == "1" if torch.__version__ < (2, 15) else chosen != "0"
