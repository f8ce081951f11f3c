"""When snapshots are taken where time decides: rank 0 decides, so that each snapshot has the parts of all ranks.

The clocks of two ranks reach a moment in different steps, and a snapshot needs every rank's part of one step. So rank 0
looks at its clock at steps that all ranks know, and says what is kept and at which step it looks again: rarely while
the next snapshot is far away, at every step when it is near. Pure; ``loop`` measures and sends the plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LONGEST_SECONDS: Final = 60.0
"""Longest time between two looks at the present speed, since steps may become slower."""


@dataclass(frozen=True)
class Plan:
    """What all ranks keep until the next look."""

    look_at: int
    """The step after which rank 0 looks at its clock again."""
    memory_steps: int = 1
    """Steps between two snapshots in memory."""
    durable: bool = False
    """Whether a durable snapshot is taken at the step at which rank 0 looked."""


@dataclass(frozen=True)
class Seen:
    """What rank 0 has measured when it looks."""

    step: int
    made: int
    """Number of steps of this generation."""
    step_seconds: float
    copy_seconds: float
    """Time of the last copy to memory; 0 before the first."""
    until_durable: float
    """Seconds until the next durable snapshot is due; not positive where it is due."""
    sending_seconds: float = 0.0
    """Processor time for sending the last copy to another node, beside the training; 0 before the first."""


def plan(seen: Seen, durable_seconds: float, memory_share: float, sending_share: float) -> Plan:
    """Decide at one look.

    Args:
        seen: rank 0's measurements.
        durable_seconds: seconds between two durable snapshots.
        memory_share: the share of the time that copies to memory may take.
        sending_share: the share of a processor's time that sending copies may take.
    """
    durable = seen.until_durable <= 0
    step_seconds = max(seen.step_seconds, 1e-6)
    left = (durable_seconds if durable else seen.until_durable) / step_seconds
    # Half of the way, so that a few looks lead to the step at which the snapshot is due. The first looks are near to
    # each other, because speed and copies are measured only then.
    ahead = min(left / 2, LONGEST_SECONDS / step_seconds, max(1, seen.made))
    between = max(seen.copy_seconds / memory_share, seen.sending_seconds / sending_share)
    memory_steps = max(1, math.ceil(between / step_seconds))
    return Plan(seen.step + max(1, int(ahead)), memory_steps, durable)
