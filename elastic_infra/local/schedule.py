"""When the faults of a plan are due. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

from elastic_infra.local.controller import is_settled
from elastic_infra.local.faults import LoseRendezvous
from elastic_infra.local.plan import Entry, Plan
from elastic_infra.local.state import State
from elastic_infra.local.watch import Training, is_training, trains_since


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The rest of a plan.

    Attributes:
        left: the remaining entries.
        last: the entry that was due last.
        struck_at: when that entry was due.
        back_at: when training was seen to be back after that entry.
    """

    left: Plan
    last: Entry | None = None
    struck_at: float = 0.0
    back_at: float | None = None

    def missed(self) -> Schedule:
        """The schedule after an entry without effect: training goes on, and no new generation follows."""
        return replace(self, last=None)


def advance(
    schedule: Schedule, state: State, training: Training, workers: int, now: float
) -> tuple[Schedule, Entry | None]:
    """The entry that is due now, if one is.

    Args:
        workers: workers on each node.
    """
    if not schedule.left or state.outcome is not None:
        return schedule, None
    schedule = _notice(schedule, state, training, workers, now)
    entry = schedule.left[0]
    since = schedule.back_at if entry.after_recovery else trains_since(training, now)
    if since is None or now < since + entry.seconds:
        return schedule, None
    return Schedule(schedule.left[1:], entry, now), entry


def _notice(schedule: Schedule, state: State, training: Training, workers: int, now: float) -> Schedule:
    """Note when training is back: every node runs, and all workers have made a step in a generation after the fault."""
    if schedule.back_at is not None or not is_settled(state):
        return schedule
    if _needs_generation(schedule) and (training.started_at is None or training.started_at <= schedule.struck_at):
        return schedule
    if not is_training(training, state.nodes * workers, schedule.struck_at, now):
        return schedule
    return replace(schedule, back_at=now)


def _needs_generation(schedule: Schedule) -> bool:
    """Whether the last fault ends the current generation; without the store workers train on."""
    return schedule.last is not None and not isinstance(schedule.last.fault, LoseRendezvous)
