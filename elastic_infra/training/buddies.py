"""Copies of shards on another node, so that the loss of one node loses no shard.

The nodes are a ring in rank order: each worker sends its snapshot in memory to a worker of the next node, and keeps
that of one of the node before. All ranks do so at the same steps, as a part of the snapshot, so that what a node has
lost is elsewhere with the step that the others have in their own memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from .host_memory import MAGIC
from .node_memory import NodeMemory

_SIZE, _ANSWER, _CONTENT = range(1, 4)  # tags of messages


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
        warn: takes a line where the memory has no room for another node's shards.
    """

    def __init__(self, memory: NodeMemory, warn: Callable[[str], None]) -> None:
        self._memory = memory
        self._warn = warn
        self._ring: Ring | None = None
        self._group: dist.ProcessGroup | None = None
        """The group with gloo in which snapshots are sent; None is the default group."""
        self._has_room = True

    @property
    def keep(self) -> bool:
        """Whether this rank keeps others' snapshots, if there is another node."""
        return self._has_room

    @property
    def are_joined(self) -> bool:
        """Whether this rank has a place in a ring."""
        return self._ring is not None

    def join(self, nodes: Sequence[str], rank: int, group: dist.ProcessGroup | None) -> None:
        """Take a place among the nodes.

        Args:
            nodes: the node of each rank, at least two different ones.
            rank: this rank.
            group: a group of all ranks with gloo; None is the default group.
        """
        self._ring, self._group = ring(nodes, rank), group

    def part(self) -> None:
        """Give the place up: copies are not needed, or not possible."""
        self._ring, self._group = None, None

    def swap(self, content: memoryview | None) -> None:
        """Send this rank's snapshot and keep those of others; every rank of the group must call this method.

        Args:
            content: the bytes of the snapshot; None where there is none.
        """
        if self._ring is None:
            return
        try:
            self._swap(content, self._ring, self._group)
        except Exception:
            if self._group is not None:  # its other peers wait for this rank until the connections close
                dist.destroy_process_group(self._group)
                self.part()
            raise

    def _swap(self, content: memoryview | None, place: Ring, group: dist.ProcessGroup | None) -> None:
        target, sources = place.target, place.sources
        size = torch.tensor([len(content) if content is not None else 0])
        sizes = _exchanged({target: size}, {source: torch.empty_like(size) for source in sources}, _SIZE, group)
        rooms = {source: self._room(number, int(sizes[source])) for number, source in enumerate(sources)}
        answers = {source: torch.tensor([int(room is not None)]) for source, room in rooms.items()}
        taken = _exchanged(answers, {target: torch.empty_like(size)}, _ANSWER, group)[target]
        going = {target: _bytes(content)} if content is not None and int(taken) else {}
        coming = {source: _bytes(room[0]) for source, room in rooms.items() if room is not None}
        _exchanged(going, coming, _CONTENT, group)
        for room in rooms.values():
            if room is not None:
                room[1]()

    def _room(self, place: int, size: int) -> tuple[memoryview, Callable[[], None]] | None:
        if not size or not self._has_room:
            return None
        try:
            return self._memory.receive(place, size)
        except OSError as error:
            self._has_room = False
            self._warn(
                f"Shards of another node are not kept here: {error.strerror or error}. If a node is lost, training "
                "goes on from disk. Raise resources.memory and shared_memory."
            )
            return None


def _exchanged(
    going: dict[int, torch.Tensor], coming: dict[int, torch.Tensor], tag: int, group: dist.ProcessGroup | None
) -> dict[int, torch.Tensor]:
    works = [dist.isend(values, target, group=group, tag=tag) for target, values in going.items()]
    works += [dist.irecv(values, source, group=group, tag=tag) for source, values in coming.items()]
    for work in works:
        work.wait()
    return coming


def _bytes(content: memoryview) -> torch.Tensor:
    """The bytes behind the magic, which is written last, so that a copy is whole or not there."""
    return torch.frombuffer(content, dtype=torch.uint8)[len(MAGIC) :]
