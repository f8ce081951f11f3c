"""The snapshots in one node's memory: the state once for all its workers, and each worker's own part.

Workers of one node hold the same model and optimizer, so the first worker writes the state and the others read it:
eight workers cost the memory of one. Random number generators differ, so every worker writes its own.
"""

from __future__ import annotations

from collections.abc import Callable

from .host_memory import SharedMemory, Tree


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
        self._state = SharedMemory(folder, "state", warn if self.keeps_state else None)
        self._own = SharedMemory(folder, f"generators-{local_rank}")

    def store(self, step: int, tree: Tree) -> memoryview:
        """Store a captured state; returns its bytes, valid until the second ``store`` after this one.

        Raises:
            OSError: the memory has no space left.
            TypeError: the state has values that a snapshot cannot hold.
        """
        return self._state.store(step, tree) if self.keeps_state else self._own.store(step, tree)

    def newest(self) -> tuple[int, Tree] | None:
        """The newest step and state of the node, with this worker's generators where it stored them at that step."""
        found = self._state.newest()
        if found is None or self.keeps_state:
            return found
        step, tree = found
        return step, {**{name: part for name, part in tree.items() if name != "rng"}, **(self._own.at(step) or {})}
