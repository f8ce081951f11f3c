"""A node whose worker ended is not waited for: it steps back, and the others train on in place.

The members whose workers have all parked form the next generation at once. The others start the missing workers on
standby, beside those that have parked, and come back as newcomers once these are ready. All are waited for, as in any
other change, where the job may not run with the nodes that remain, where it is about to end, or where a start takes no
longer than a step.
"""

from __future__ import annotations

from .member_status import MemberStatus
from .records import Generation, NodeRecord
from .state import State


def remaining(state: State, generation: Generation, statuses: tuple[MemberStatus, ...]) -> tuple[MemberStatus, ...]:
    """The members that train on without the others; none where all are waited for.

    One of them has made a step in this generation: it has the state, and each change without a node is earned by a
    step.

    Args:
        state: this node's state.
        generation: the generation that has ended, with the ``mode`` of the next one.
        statuses: those of its members.
    """
    if generation.mode != "move" or generation.finishing or not _takes_long(state, generation):
        return ()
    whole = tuple(status for status in statuses if status.live is not None and is_whole(status.live))
    return whole if any(status.stepped for status in whole) else ()


def is_whole(said: NodeRecord) -> bool:
    """Whether all workers of the node live and have parked."""
    return said.state == "parked" and not said.incomplete


def _takes_long(state: State, generation: Generation) -> bool:
    """Whether a start takes longer than a step, or it is not known how long start or step take.

    A node that is left out is missing for a step at least, since it comes back at the end of one. The others would wait
    for the start and for the transfer of the state as well.
    """
    per_second = state.workers.per_second if state.workers else 0.0
    if generation.startup_seconds is None or not per_second:
        return True
    return generation.startup_seconds * per_second > 1
