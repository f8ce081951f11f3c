"""One worker's part in the ring of nodes, in which each node keeps the random number generators of the one before.

The first worker of a node takes part. Model, optimizer and position in the data are the same on all nodes, so their
memories hold these already. Random number generators differ from worker to worker, and are a few kilobytes each.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from .console import warn
from .host_memory import Tree
from .neighbour import Address, Receiver, Sender, route_to
from .node_memory import NodeMemory


@dataclasses.dataclass(frozen=True)
class Invitation:
    """What the first worker of a node says when a group begins."""

    address: Address
    """Where the node before this one sends its copies."""
    key: bytes = dataclasses.field(repr=False)
    """Proposed for the whole group, which takes the first node's."""


class Copies:
    """The two ends of the ring at one node.

    Args:
        memory: the node's memory, of its first worker.
    """

    def __init__(self, memory: NodeMemory) -> None:
        self._memory = memory
        self._receiver = Receiver(memory.keep)
        self._sender = Sender(warn)

    def invitation(self, environ: Mapping[str, str] = os.environ) -> Invitation | None:
        """Where this node takes copies; None where the job has one node, or no port can be had."""
        if environ.get("GROUP_WORLD_SIZE", "1") == "1":
            return None
        try:
            host = route_to(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))
            return Invitation((host, self._receiver.listen()), os.urandom(32))
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
