"""The agent's end of the channel to workers that can be moved: who has connected, what they said, what they are told.

A worker that never connects is one that cannot be moved; nothing here is about it.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping

from ..protocol import events
from ..workers import channel


class WorkerChannels:
    """This node's workers that have connected, by local rank."""

    def __init__(self, selector: selectors.BaseSelector, on_event: Callable[[events.Event], None]) -> None:
        self._selector = selector
        self._on_event = on_event
        self._server: channel.Server | None = None
        self._pids: dict[int, int] = {}
        """Local rank by pid."""
        self._connections: dict[int, channel.Connection] = {}
        self._obstacles: dict[int, str] = {}
        """Of workers that are in the group of the generation."""
        self.generation = 0
        """The one whose workers these are."""
        self._enters: Mapping[int, channel.Enter] = {}
        self._is_over = False
        """The generation's workers have been told to park."""

    def listen(self, path: str) -> None:
        """Begin; where no socket can be made no worker can be moved, and all else is as ever."""
        try:
            self._server = channel.Server.listen(path)
        except OSError:
            return
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)

    def begin(self, generation: int, enters: Mapping[int, channel.Enter], kept: tuple[int, ...]) -> None:
        """A generation begins: who is kept enters it now, those who are started do when they are ready.

        Args:
            generation: its number.
            enters: where each local rank goes.
            kept: local ranks that live on.
        """
        for rank in [rank for rank in self._connections if rank not in kept]:
            self._forget(rank)
        self._pids = {pid: rank for pid, rank in self._pids.items() if rank in kept}
        if self._server is not None:
            self._server.drop_strangers()
        self.generation, self._enters, self._is_over = generation, enters, False
        self._obstacles = {}
        for rank in kept:
            self._send(rank, enters[rank])

    def started(self, local_rank: int, pid: int) -> None:
        """A worker runs, and may have connected."""
        self._pids[pid] = local_rank
        self._claim()

    def part(self, generation: int) -> None:
        """Tell all that the generation is over; who is ready to enter it only now has parked already."""
        self._is_over = True
        for rank in tuple(self._connections):
            self._send(rank, channel.Break(generation))

    def dismiss(self, *, keeps_state: bool) -> None:
        """Tell all that training goes on without them."""
        for rank in tuple(self._connections):
            self._send(rank, channel.Dismiss(keeps_state))

    def close(self) -> None:
        """Hear no worker any more."""
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
        for pid, rank in self._pids.items():
            connection = self._server.claim(pid) if self._server is not None else None
            if connection is not None and rank in self._connections:
                connection.close()
            elif connection is not None:
                self._connections[rank] = connection
                self._selector.register(connection, selectors.EVENT_READ, lambda rank=rank: self._take(rank))

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
        elif isinstance(said, channel.Failed) and said.generation == self.generation:
            self._on_event(events.StepBroke(self.generation, rank, said.message))

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
