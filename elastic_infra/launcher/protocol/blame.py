"""What is to blame for a generation's failure: a worker, or the number of workers."""

from __future__ import annotations

from . import ranks
from .member_status import MemberStatus
from .records import Generation


def is_size_in_question(generation: Generation) -> bool:
    """The script has trained with another number of workers, and never with this one."""
    return bool(generation.trained) and ranks.world_size(generation.members) not in generation.trained


def is_size_refused(generation: Generation, statuses: tuple[MemberStatus, ...]) -> bool:
    """The first failure came before any step, with a number of workers in question, and another node failed alike.

    Where no number has trained yet the script itself may be at fault, and its failures are charged as ever. Failures
    that only follow from the first, as those of its peers' collectives, are alike too, but not like the first.
    """
    failed = generation.cause.uuid if generation.cause else ""
    first = next((status.failure for status in statuses if status.member.uuid == failed), "")
    alike = [status for status in statuses if status.failure == first]
    return bool(first) and len(alike) > 1 and is_size_in_question(generation)
