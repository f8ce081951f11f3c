"""When this node loads its fork server, and when it is able to start workers.

A program that imports torch anyway the supervisor loads by itself, while the nodes find each other: its workers are
forked from the start. Any other is loaded once its first workers have shown what they import, and before that only by
a newcomer that is not needed yet: a node that says ``ready`` ends the others' generation, and a group steps only once
its slowest worker does. A node that is needed says so at once. The decision is pure; membership is not its business.
"""

from __future__ import annotations

from typing import Literal

from .. import ipc
from ..protocol.events import Ready
from ..protocol.state import State
from .worker_group import WorkerGroup


class Warming:
    """One node's way to ``ready``."""

    def __init__(self, channel: ipc.Channel, group: WorkerGroup) -> None:
        self._channel = channel
        self._group = group
        self._asked_at: float | None = None
        self.is_over = False
        """The fork server is ready, or will never be."""

    def look(self, state: State, now: float) -> tuple[Ready, ...]:
        """The event that this node is able, once it is; the fork server is asked for where it comes first."""
        if state.ready:
            return ()
        can_warm = self._group.is_warm and not self.is_over
        verdict = decide(state, can_warm=can_warm, asked_at=self._asked_at, now=now)
        if verdict == "ask":
            self._asked_at = now
            self._channel.send(ipc.WarmUp())
        return (Ready(),) if verdict == "ready" else ()


def decide(state: State, *, can_warm: bool, asked_at: float | None, now: float) -> Literal["wait", "ask", "ready"]:
    """What to do on the way to ready; before the store was heard it is unknown which nodes are needed."""
    if not state.store.connected:
        return "wait"
    if not can_warm or not others_train(state):
        return "ready"
    if asked_at is None:
        return "ask"
    return "ready" if now - asked_at >= ipc.LOAD_SECONDS else "wait"


def others_train(state: State) -> bool:
    """Whether the generation there is can do without this node: it has enough members that live."""
    generation = state.generation
    if generation is None or generation.phase == "final" or state.own_member() is not None:
        return False
    live = {said.uuid for said in state.store.live()}
    return sum(member.uuid in live for member in generation.members) >= state.limits.min_nodes
