"""When this node loads its fork server, and when it is able to start workers.

Where the program is seen to import torch, the supervisor loads the fork server by itself while the nodes find each
other, and all workers are forked. For any other program the fork server is loaded once the first workers have shown
their imports, and before that only on a newcomer that is not needed yet: a node that says ``ready`` ends the others'
generation, and a group steps only once its slowest worker does. A node that is needed says ``ready`` at once. The
decision is pure and does not touch membership.
"""

from __future__ import annotations

from typing import Literal

from .. import ipc
from ..protocol.events import Ready
from ..protocol.state import State
from .worker_group import WorkerGroup


class Warming:
    """One node's warm-up before it says ``ready``."""

    def __init__(self, channel: ipc.Channel, group: WorkerGroup) -> None:
        self._channel = channel
        self._group = group
        self._asked_at: float | None = None
        self.is_over = False
        """The fork server is ready, or will never be."""

    def look(self, state: State, now: float) -> tuple[Ready, ...]:
        """The event that this node is ready, once it is; asks for the fork server where it must be loaded first."""
        if state.ready:
            return ()
        can_warm = self._group.is_warm and not self.is_over
        verdict = decide(state, can_warm=can_warm, asked_at=self._asked_at, now=now)
        if verdict == "ask":
            self._asked_at = now
            self._channel.send(ipc.WarmUp())
        return (Ready(),) if verdict == "ready" else ()


def decide(state: State, *, can_warm: bool, asked_at: float | None, now: float) -> Literal["wait", "ask", "ready"]:
    """What to do before ``ready``; before the store has answered it is unknown which nodes are needed."""
    if not state.store.connected:
        return "wait"
    if not can_warm or not others_train(state):
        return "ready"
    if asked_at is None:
        return "ask"
    return "ready" if now - asked_at >= ipc.LOAD_SECONDS else "wait"


def others_train(state: State) -> bool:
    """Whether the current generation can do without this node: enough of its members live."""
    generation = state.generation
    if generation is None or generation.phase == "final" or state.own_member() is not None:
        return False
    return sum(state.store.is_live(member.uuid) for member in generation.members) >= state.limits.min_nodes
