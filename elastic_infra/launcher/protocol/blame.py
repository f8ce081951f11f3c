"""The cause of a generation's failure: a worker, the worker that a hang waits for, or the number of workers."""

from __future__ import annotations

from dataclasses import replace

from . import ranks
from .member_status import MemberStatus
from .records import Cause, Generation


def culprit(generation: Generation, statuses: tuple[MemberStatus, ...]) -> Cause | None:
    """The generation's cause; for a hang the worker that is furthest behind, since the others wait for it."""
    cause = generation.cause
    told = [status for status in statuses if len(status.hung_at) > 1]
    # No hang, or no worker is behind another: the worker that was seen first is as likely as any.
    if cause is None or cause.kind != "hang" or len({status.hung_at[0] for status in told}) <= 1:
        return cause
    slowest = min(told, key=lambda status: status.hung_at)
    (step, local_rank), member = slowest.hung_at[:2], slowest.member
    rank = ranks.first_rank(generation.members, member.uuid) + local_rank
    message = f"Rank {rank} on {member.name} is furthest behind, at step {step}. Seen on {cause.node}: {cause.message}"
    return replace(cause, node=member.name, uuid=member.uuid, rank=rank, message=message)


def is_size_in_question(generation: Generation) -> bool:
    """Whether the script has trained with another number of workers, and never with this one."""
    return bool(generation.trained) and ranks.world_size(generation.members) not in generation.trained


def is_size_refused(generation: Generation, statuses: tuple[MemberStatus, ...]) -> bool:
    """Whether the first failure came before any step, at a world size in question, and another node failed alike.

    Where no number has trained yet the script itself may be at fault, and its failures are charged as usual. Failures
    that only follow from the first, such as those of its peers' collectives, equal each other but not the first.
    """
    failed = generation.cause.uuid if generation.cause else ""
    first = next((status.failure for status in statuses if status.member.uuid == failed), "")
    alike = [status for status in statuses if status.failure == first]
    return bool(first) and len(alike) > 1 and is_size_in_question(generation)
