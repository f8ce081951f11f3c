"""One worker's part in the ring of nodes, in which each node keeps the random number generators of the one before.

The first worker of a node takes part. Model, optimizer and position in the data are the same on all nodes, so their
memories hold these already. Random number generators differ from worker to worker, and are a few kilobytes each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from .console import warn
from .host_memory import Tree
from .neighbour import SHARE, Invitation, Receiver, Room, Sender
from .node_memory import NodeMemory

MAX_BYTES: Final = 1 << 28
"""Bytes of one snapshot: the generators of a thousand workers are a tenth of it."""


class Copies:
    """The two ends of the ring at one node.

    Args:
        memory: the node's memory, of its first worker.
    """

    def __init__(self, memory: NodeMemory) -> None:
        self._memory = memory
        self._receiver = Receiver(self._room)
        loss = "the generators of its workers get another seed"
        # The interpreter runs one thread at a time, and packs these: within 0.1 s, not every snapshot is sent.
        self._sender = Sender(warn, "the random number generators", loss, SHARE)

    def invitation(self, environ: Mapping[str, str] = os.environ) -> Invitation | None:
        """Where this node takes copies; None where the job has one node, or no port can be had."""
        if environ.get("GROUP_WORLD_SIZE", "1") == "1":
            return None
        try:
            return self._receiver.invitation(environ)
        except OSError as error:
            warn(f"Other nodes' random number generators are not kept here: {error.strerror or error}.")
            return None

    def join(self, invitations: Sequence[Invitation | None], mine: Invitation | None) -> None:
        """Take copies from the node before this one and send to the next one, of those that invite, in rank order."""
        ring = [invitation for invitation in invitations if invitation is not None]
        key = ring[0].key if mine is not None else b""
        self._receiver.follow(key)
        place = ring.index(mine) if mine is not None else 0
        after = ring[(place + 1) % len(ring)].address if mine is not None and len(ring) > 1 else None
        self._sender.follow(after, key)

    def send(self, step: int, rank: int, rng: Tree, environ: Mapping[str, str] = os.environ) -> None:
        """Have this node's generators after a step sent to the next node; returns at once."""
        workers = int(environ.get("LOCAL_WORLD_SIZE", "1"))
        self._sender.send(lambda: self._memory.outgoing(step, rng, rank, workers))

    def _room(self, place: int, size: int) -> Room | None:
        del place  # a node has one node before it
        content = bytearray(min(size, MAX_BYTES))
        return Room(memoryview(content), lambda: self._memory.keep(content)) if size <= MAX_BYTES else None
