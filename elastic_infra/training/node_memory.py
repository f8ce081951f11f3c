"""The snapshots in one node's memory: the state once for all its workers, and each worker's own part.

Workers of one node hold the same model and optimizer, so the first worker writes the state and the others read it:
eight workers cost the memory of one. Random number generators and shards differ, so every worker writes its own. The
first worker also keeps the generators of the node before this one, in rank order, since no other memory holds them.
Where the state is sharded, each worker may keep all of a worker's snapshot of the node before (``buddies``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from .host_memory import DamagedError, Draft, SharedMemory, Tree, bytes_of, read

SIBLING_SECONDS: Final = 2.0
"""How long the first worker waits for the others' parts of a step: they end it within milliseconds of each other."""
_POLL_SECONDS: Final = 0.005

Parts = dict[int, dict[int, Tree]]
"""By step and rank: the random number generators."""

Key = tuple[int, str]
"""A sharded snapshot: its step, and the run of the workers whose shards belong together."""


class NodeMemory:
    """One worker's access to the node's snapshots.

    Args:
        folder: the launcher's folder in shared memory.
        local_rank: this worker's local rank.
        warn: takes a line for each snapshot of the state that is skipped because it is not whole.
    """

    def __init__(self, folder: str, local_rank: int, warn: Callable[[str], None] | None = None) -> None:
        self.keeps_state = local_rank == 0
        """Whether this worker writes the state for all workers of the node."""
        self._folder = folder
        self._local_rank = local_rank
        self._others: dict[int, SharedMemory] = {}
        self._state = SharedMemory(folder, "state", warn if self.keeps_state else None)
        self._own = self._state if self.keeps_state else self._generators(local_rank)
        self._kept = 0
        """Number of snapshots of the node before this one that this worker has kept."""

    def store(self, step: int, rank: int, tree: Tree) -> memoryview:
        """Store a captured state; returns its bytes, valid until the second ``store`` after this one.

        Raises:
            OSError: the memory has no room for it.
            TypeError: the state has values that a snapshot cannot hold.
        """
        return self._own.store(step, {**tree, "rank": rank})

    def draft(self, step: int, rank: int, tree: Tree) -> Draft:
        """Begin to store a captured state; the caller copies its tensors and publishes it.

        Raises:
            OSError: the memory has no room for it.
            TypeError: the state has values that a snapshot cannot hold.
        """
        return self._own.draft(step, {**tree, "rank": rank})

    def newest(self) -> tuple[int, Tree] | None:
        """The newest step and state of the node."""
        return self._state.newest()

    def parts(self) -> Parts:
        """The generators that this worker answers for: its own, and on the first worker the neighbour's."""
        found: Parts = {}
        for step, ranks in self._neighbours() if self.keeps_state else ():
            found.setdefault(step, {}).update(ranks)
        own = SharedMemory(self._folder, "state") if self.keeps_state else self._own  # ``newest`` has warned
        for step, tree in own.whole():
            found.setdefault(step, {})[tree["rank"]] = tree["rng"]
        return found

    def outgoing(self, step: int, own: Tree, first_rank: int, workers: int) -> bytes | None:
        """The generators of all workers of this node after a step, as the next node keeps them.

        Waits for the other workers to end the step; None where one did not, or has gone further.

        Args:
            step: number of steps that are done.
            own: this worker's generators, which are the first rank's.
            first_rank: the rank of this worker.
            workers: number of workers on this node.
        """
        ranks = {first_rank: own}
        deadline = time.monotonic() + SIBLING_SECONDS
        for local_rank in range(1, workers):
            memory = self._generators(local_rank)
            while (tree := memory.copy_at(step)) is None:
                if time.monotonic() > deadline or _is_beyond(memory, step):
                    return None
                time.sleep(_POLL_SECONDS)
            ranks[first_rank + local_rank] = tree["rng"]
        return bytes(bytes_of(step, {"ranks": ranks}))

    def keep(self, content: bytes | bytearray) -> None:
        """Keep what ``outgoing`` gave on the node before this one; the last two stay, each whole or not there."""
        draft = self._place_of("draft")
        with contextlib.suppress(OSError):  # without room the copy is missing, as before
            draft.write_bytes(content)
            draft.rename(self._place_of(str(self._kept % 2)))
            self._kept += 1

    def _neighbours(self) -> list[tuple[int, dict[int, Tree]]]:
        found = []
        for turn in ("0", "1"):
            with contextlib.suppress(FileNotFoundError, DamagedError):
                given = read(memoryview(bytearray(self._place_of(turn).read_bytes())))
                found.append((given["step"], given["state"]["ranks"]))
        return found

    def _place_of(self, turn: str) -> Path:
        return Path(self._folder) / f"neighbour.{turn}"

    def _generators(self, local_rank: int) -> SharedMemory:
        return SharedMemory(self._folder, f"generators-{local_rank}")

    def sharded(self) -> Mapping[Key, Tree]:
        """Every sharded snapshot of which both the node's state and this worker's own part are there."""
        state = _by_key(self._state)
        own = state if self.keeps_state else _by_key(self._own)
        return {key: {**state[key], **own[key]} for key in state.keys() & own.keys()}

    def receive(self, place: int, size: int) -> tuple[memoryview, Callable[[], None]]:
        """Room for the snapshot of a worker of another node, and what makes it whole once all but its magic is there.

        Args:
            place: which of those workers it is whose snapshots this worker keeps.
            size: bytes of the snapshot.

        Raises:
            OSError: the memory has no room for it.
        """
        if place not in self._others:
            self._others[place] = SharedMemory(self._folder, f"copy-{self._local_rank}-{place}")
        return self._others[place].receive(size)

    def copies(self) -> Mapping[Key, list[Tree]]:
        """The sharded snapshots of other nodes' workers that this worker keeps."""
        for path in Path(self._folder).glob(f"copy-{self._local_rank}-*.0"):
            place = int(path.stem.rpartition("-")[2])
            self._others.setdefault(place, SharedMemory(self._folder, path.stem))
        found: dict[Key, list[Tree]] = {}
        for memory in self._others.values():
            for key, tree in _by_key(memory).items():
                found.setdefault(key, []).append(tree)
        return found

    def spare(self, key: Key) -> None:
        """Have the next snapshots overwrite others than those from which training goes on."""
        for memory in (self._own, *self._others.values()):
            memory.spare(lambda step, tree: (step, tree.get("run")) == key)


def _is_beyond(memory: SharedMemory, step: int) -> bool:
    newest = memory.newest()
    return newest is not None and newest[0] > step


def _by_key(memory: SharedMemory) -> dict[Key, Tree]:
    return {(step, tree["run"]): tree for step, tree in memory.whole() if "run" in tree}
