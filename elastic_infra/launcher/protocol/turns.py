"""Who asks for a change that all members see at once: in a large generation one after the other.

Every request carries the whole record, one of them wins, and the store is one thread: a thousand at once would keep the
store from everything else for seconds. Nothing is unsafe about asking too early or too late: compare-and-set decides.
"""

from __future__ import annotations

from typing import Final

from .records import Generation
from .state import State

CROWD: Final = 64
"""Up to so many members all ask at once, which is quickest and costs the store milliseconds."""
TURN_SECONDS: Final = 0.05
"""How long the next member waits for the ones before it."""


def is_turn(state: State, wanted: Generation, now: float) -> bool:
    """Whether this node asks for the change now."""
    if len(wanted.members) <= CROWD or _is_own_news(state, wanted):
        return True
    since = now if state.wanting_since is None else state.wanting_since
    return now - since >= TURN_SECONDS * _place(state, wanted)


def _is_own_news(state: State, wanted: Generation) -> bool:
    """Only this node can know why: its own workers failed, are suspended, or are past the stop step."""
    before, workers = state.generation, state.workers
    if before is None:
        return False
    if workers is not None and workers.suspension:
        return True
    raises_stop_step = wanted.phase == "proposed" and before.phase == "proposed"
    is_own_cause = wanted.cause is not None and wanted.cause.uuid == state.node.uuid and wanted.cause != before.cause
    return raises_stop_step or is_own_cause


def _place(state: State, wanted: Generation) -> int:
    """How many members that answer come before this one, in the order of the ranks; newcomers come last."""
    members = (state.generation or wanted).members or wanted.members
    place = 0
    for member in members:
        if member.uuid == state.node.uuid:
            return place
        peer = state.store.peer(member.uuid)
        place += peer is not None and peer.presence == "live"
    return place
