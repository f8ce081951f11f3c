"""Which member asks for a change that all members see at once: in a large generation one after the other.

Every request carries the whole record, one request wins, and the store has one thread: a thousand requests at once
would block the store for seconds. Asking too early or too late is safe, since compare-and-set decides.
"""

from __future__ import annotations

from typing import Final

from .records import Generation
from .state import State

CROWD: Final = 64
"""Up to so many members all ask at once, which is fastest and costs the store milliseconds."""
TURN_SECONDS: Final = 0.05
"""How long a member waits for the member before it."""


def is_turn(state: State, wanted: Generation, now: float) -> bool:
    """Whether this node asks for the change now."""
    if len(wanted.members) <= CROWD or _is_own_news(state, wanted):
        return True
    since = now if state.wanting_since is None else state.wanting_since
    return now - since >= TURN_SECONDS * _place(state, wanted)


def _is_own_news(state: State, wanted: Generation) -> bool:
    """Whether only this node can know the reason: its own workers failed, are suspended, or are past the stop step."""
    before, workers = state.generation, state.workers
    if before is None:
        return False
    if workers is not None and workers.suspension:
        return True
    raises_stop_step = wanted.phase == before.phase == "proposed" and wanted.stop_step != before.stop_step
    is_own_cause = wanted.cause is not None and wanted.cause.uuid == state.node.uuid and wanted.cause != before.cause
    return raises_stop_step or is_own_cause


def _place(state: State, wanted: Generation) -> int:
    """The number of answering members before this one, in the order of the ranks; newcomers come last."""
    members = (state.generation or wanted).members or wanted.members
    place = 0
    for member in members:
        if member.uuid == state.node.uuid:
            return place
        place += state.store.is_live(member.uuid)
    return place
