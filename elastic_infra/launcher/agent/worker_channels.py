"""The agent's end of the channel to workers that can be moved: the connected workers and the messages both ways.

A worker that never connects cannot be moved, and this module does nothing about it.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping

from ..protocol import events
from ..workers import channel, failures


class WorkerChannels:
    """This node's workers that have connected, by local rank."""

    def __init__(
        self, selector: selectors.BaseSelector, on_event: Callable[[events.Event], None], workers: int
    ) -> None:
        """Prepare the channels of a node that has so many workers."""
        self._selector = selector
        self._on_event = on_event
        self._workers = workers
        self._server: channel.Server | None = None
        self._pids: dict[int, int] = {}
        """Local rank by pid."""
        self._connections: dict[int, channel.Connection] = {}
        self._obstacles: dict[int, str] = {}
        """By local rank of a worker in the generation's process group: why it cannot be moved, empty where it can."""
        self.generation = 0
        """The number of the generation to which these workers belong."""
        self._enters: Mapping[int, channel.Enter] = {}
        self._is_over = False
        """There is no generation to enter: the workers have been told to park, or are on standby."""

    def listen(self, path: str) -> None:
        """Listen for workers; where no socket can be made no worker can be moved, and all else works."""
        try:
            self._server = channel.Server.listen(path)
        except OSError:
            return
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)

    def begin(self, generation: int, enters: Mapping[int, channel.Enter], kept: tuple[int, ...]) -> None:
        """Begin a generation: kept workers enter it now, started workers when they are ready.

        Args:
            generation: its number.
            enters: the place of each local rank; none yet for workers on standby.
            kept: local ranks whose processes live on.
        """
        for rank in [rank for rank in self._connections if rank not in kept]:
            self._forget(rank)
        self._pids = {pid: rank for pid, rank in self._pids.items() if rank in kept}
        if self._server is not None:
            self._server.drop_unclaimed()
        self.generation, self._enters, self._is_over = generation, enters, False
        self._obstacles = {}
        for rank in kept:
            if rank in enters:
                self._send(rank, enters[rank])

    def prepare(self, kept: tuple[int, ...] = ()) -> None:
        """Begin with workers on standby: those that are ready have parked, as those that are kept have already."""
        self.begin(0, {}, kept)
        self._is_over = True

    def started(self, local_rank: int, pid: int) -> None:
        """Take down the pid of a local rank, whose worker may have connected already."""
        self._pids[pid] = local_rank
        self._claim()

    def part(self, generation: int) -> None:
        """Tell all workers that the generation is over; a worker that becomes ready only now counts as parked."""
        self._is_over = True
        for rank in tuple(self._connections):
            self._send(rank, channel.Break(generation))

    def dismiss(self, saves: channel.Saves) -> None:
        """Tell all workers that training goes on without them; of a whole state the first worker saves one copy."""
        for position, rank in enumerate(sorted(self._connections)):
            self._send(rank, channel.Dismiss(saves if saves == "part" or not position else "nothing"))

    def close(self) -> None:
        """Close all connections and stop listening."""
        for rank in tuple(self._connections):
            self._forget(rank)
        if self._server is not None:
            self._selector.unregister(self._server)
            self._server.close()
            self._server = None

    def _accept(self) -> None:
        if self._server is not None:
            self._server.accept()
            self._claim()

    def _claim(self) -> None:
        if self._server is None:
            return
        for pid, rank in self._pids.items():
            connection = self._server.claim(pid)
            if connection is not None and rank in self._connections:
                connection.close()
            elif connection is not None:
                self._connections[rank] = connection
                self._selector.register(connection, selectors.EVENT_READ, lambda rank=rank: self._take(rank))
        if len(self._pids) >= self._workers:
            self._server.drop_unclaimed()

    def _take(self, rank: int) -> None:
        connection = self._connections.get(rank)
        if connection is None:
            return
        said = connection.receive()
        if said is None:
            self._forget(rank)
        elif isinstance(said, channel.Ready):
            self._on_ready(rank)
        elif isinstance(said, channel.In) and said.generation == self.generation:
            self._on_in(rank, said.obstacle)
        elif isinstance(said, channel.Parked) and said.generation == self.generation:
            self._on_event(events.WorkerParked(self.generation, rank))
        elif isinstance(said, channel.Stuck) and said.generation == self.generation:
            self._on_event(events.WorkerStuck(self.generation, rank))
        elif isinstance(said, channel.Failed) and said.generation == self.generation:
            self._on_event(
                events.StepBroke(self.generation, rank, failures.excerpt(said.message, failures.ERROR_CHARACTERS))
            )

    def _on_ready(self, rank: int) -> None:
        if self._is_over:
            self._on_event(events.WorkerParked(self.generation, rank))
        elif rank in self._enters:
            self._send(rank, self._enters[rank])

    def _on_in(self, rank: int, obstacle: str) -> None:
        self._obstacles[rank] = obstacle
        if len(self._obstacles) == len(self._enters):
            can_move = not any(self._obstacles.values())
            self._on_event(events.WorkersIn(self.generation, can_move=can_move))

    def _send(self, rank: int, message: channel.Message) -> None:
        connection = self._connections.get(rank)
        if connection is not None and not connection.send(message):
            self._forget(rank)

    def _forget(self, rank: int) -> None:
        connection = self._connections.pop(rank, None)
        if connection is not None:
            self._selector.unregister(connection)
            connection.close()


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Variables that a worker must set to have the environment of another generation."""
    return {name: value for name, value in after.items() if before.get(name) != value}
