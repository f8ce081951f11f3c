"""Copies of shards on another node, so that the loss of one node loses no shard.

The nodes are a ring in rank order: each worker sends its snapshot in memory to a worker of the next node, and keeps
that of one of the node before. Threads do both (``neighbour``) while training goes on. While a snapshot is on its way,
the one before it is the newest that survives the loss of any node. So the next one, which overwrites that, waits until
all ranks have heard that the copies of all have arrived. Where one has not, the next one is left out, and that copy is
sent once more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed as dist

from .console import warn, warn_for_job
from .host_memory import MAGIC
from .neighbour import Invitation, Receiver, Room, Sender
from .node_memory import NodeMemory

FAILURES: Final = 3
"""Times in a row that copies do not arrive before there are none any more."""


@dataclasses.dataclass(frozen=True)
class Ring:
    """A rank's place among the nodes."""

    target: int
    """The rank that keeps this rank's snapshots."""
    sources: tuple[int, ...]
    """The ranks whose snapshots this rank keeps."""


def ring(nodes: Sequence[str], rank: int) -> Ring:
    """Which rank keeps whose snapshots.

    Args:
        nodes: the node of each rank, at least two different ones.
        rank: this rank.
    """
    ranks: dict[str, list[int]] = {}
    for other, node in enumerate(nodes):
        ranks.setdefault(node, []).append(other)
    order = list(ranks.values())
    targets = {
        source: after[place % len(after)]
        for here, after in zip(order, [*order[1:], order[0]], strict=True)
        for place, source in enumerate(here)
    }
    return Ring(targets[rank], tuple(source for source, target in sorted(targets.items()) if target == rank))


class Buddies:
    """This rank's end of the ring.

    Args:
        memory: the node's memory.
    """

    def __init__(self, memory: NodeMemory) -> None:
        self._memory = memory
        self._receiver = Receiver(self._room)
        self._sender = Sender(warn, "the shards", "training goes on from disk")
        self._ring: Ring | None = None
        self._group: dist.ProcessGroup | None = None
        """The group with gloo in which ranks agree; None is the default group."""
        self._content: memoryview | None = None
        """What was sent last."""
        self._failures = 0
        """Times in a row that the copies of all ranks have not arrived."""
        self._has_room = True

    @property
    def keep(self) -> bool:
        """Whether this rank keeps others' snapshots, if there is another node."""
        return self._has_room

    @property
    def are_joined(self) -> bool:
        """Whether this rank has a place in a ring."""
        return self._ring is not None

    @property
    def seconds(self) -> float:
        """Processor time for sending the last snapshot."""
        return self._sender.seconds

    def invitation(self) -> Invitation | None:
        """Where this rank takes copies; None where no port can be had."""
        try:
            return self._receiver.invitation()
        except OSError as error:
            warn(f"Shards of other nodes are not kept here: {error.strerror or error}.")
            return None

    def join(
        self,
        nodes: Sequence[str],
        rank: int,
        invitations: Sequence[Invitation | None],
        group: dist.ProcessGroup | None,
    ) -> None:
        """Take a place among the nodes; without all invitations none is taken.

        Args:
            nodes: the node of each rank, at least two different ones.
            rank: this rank.
            invitations: those of all ranks.
            group: a group of all ranks with gloo; None is the default group.
        """
        invited = [invitation for invitation in invitations if invitation is not None]
        if len(invited) < len(nodes):
            self.part()
            return
        self._ring, self._group, self._failures = ring(nodes, rank), group, 0
        place = ring(nodes, self._ring.target).sources.index(rank)
        self._receiver.follow(invited[0].key)
        self._sender.follow(invited[self._ring.target].address, invited[0].key, place)

    def part(self) -> None:
        """Give the place up; no copy that has not come whole is written to any more."""
        self.interrupt()
        self._receiver.follow(b"")
        self._ring, self._group, self._content = None, None, None

    def interrupt(self) -> None:
        """End what waits for the copies of a generation that is over, from any thread."""
        self._sender.follow(None, b"")

    def send(self, content: memoryview | None) -> None:
        """Have this rank's snapshot sent, whose bytes must not change until ``have_arrived`` is true.

        Args:
            content: the bytes of the snapshot; None where there is none.
        """
        self._content = content
        self._sender.send(lambda: content[len(MAGIC) :] if content is not None else None)

    def have_arrived(self) -> bool:
        """Wait until the copies of all ranks have arrived; every rank of the group must call this method.

        A copy that does not arrive is sent once more. With the third time in a row all ranks give their places up:
        training goes on without copies until nodes come or go.

        Returns:
            Whether all have arrived, or none was sent. The newest snapshot is then whole without any one node, and the
            one before may be overwritten. Where it is false that one must stay as long as ranks are joined.
        """
        if self._ring is None:
            return False
        has_arrived = self._sender.await_arrival()
        arrived = torch.tensor([int(has_arrived)])
        try:
            dist.all_reduce(arrived, dist.ReduceOp.MIN, group=self._group)
        except Exception:
            if self._group is not None:  # its other peers wait for this rank until the connections close
                dist.destroy_process_group(self._group)
            self.part()
            raise
        self._failures = 0 if arrived else self._failures + 1
        if self._failures == FAILURES:
            self.part()
            warn_for_job(
                f"Copies of the shards did not reach another node {FAILURES} times in a row. Training goes on without "
                "copies until nodes come or go: if any node is lost, it goes on from disk. The logs of the other "
                "workers say which node is not reached, and why."
            )
        elif not has_arrived:
            self.send(self._content)
        return bool(arrived)

    def _room(self, place: int, size: int) -> Room | None:
        """Room for the snapshot of a source; without its magic, which is written last, a copy is not there."""
        if not self._has_room:
            return None
        try:
            room, finish = self._memory.receive(place, size + len(MAGIC))
        except OSError as error:
            self._has_room = False
            warn(
                f"Shards of another node are not kept here: {error.strerror or error}. If a node is lost, training "
                "goes on from disk. Raise resources.memory and shared_memory."
            )
            return None
        return Room(room[len(MAGIC) :], finish)
