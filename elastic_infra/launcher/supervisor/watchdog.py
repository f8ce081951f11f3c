"""When the supervisor must end a launcher whose agent no longer does its work.

One pure decision, taken about once a second from the supervisor's own observations. The watchdog reads neither zombies
nor the process table, so orphans that wait to be reaped and storms of normal exits cannot fire it, and one dead worker
under a deadlocked agent is enough to fire. Why the usual rule fails both ways is in
https://github.com/flyteorg/flyte-sdk (zombie count in ``task.py``); the tests hold that rule as their control.
"""

from __future__ import annotations

import dataclasses
from typing import Final

BUDGET_SECONDS: Final = 10.0
"""The longest silence of an agent, which beats every second; with it the launcher is gone within 15 s of the fault."""

LONGEST_TICK_SECONDS: Final = 2.0
"""A longer pause between two looks was the supervisor's own (a suspended machine, a throttled container). It counts as
this long only, since no process ran in that time."""


@dataclasses.dataclass(frozen=True)
class Observation:
    """The supervisor's observations at one moment."""

    now: float
    """CLOCK_MONOTONIC."""
    beats: int
    """Number of beats the agent has sent so far."""
    phase: str
    spawn: int
    running: int
    """Number of workers of that spawn that have not ended."""
    started: int
    """Number of workers of that spawn that were started."""
    stopping: bool
    """Whether the agent has asked for their end."""


@dataclasses.dataclass(frozen=True)
class Watch:
    """Time counted against the agent so far."""

    last: Observation | None = None
    silent_seconds: float = 0.0
    """Time since the agent's last beat."""
    unseen_seconds: float = 0.0
    """Time since all workers ended while the agent still reports the phase ``monitoring``."""


@dataclasses.dataclass(frozen=True)
class Fire:
    """The order to end the launcher, with its reason."""

    reason: str


def decide(watch: Watch, seen: Observation) -> tuple[Watch, Fire | None]:
    """Count the time since the last look and decide whether it is too long."""
    last = watch.last
    if last is None:
        return Watch(seen), None
    passed = min(seen.now - last.now, LONGEST_TICK_SECONDS)
    silent = watch.silent_seconds + passed if seen.beats == last.beats else 0.0
    unseen = watch.unseen_seconds + passed if _unseen(seen) and _same_group(seen, last) else 0.0
    watch = Watch(seen, silent, unseen)
    if silent >= BUDGET_SECONDS:
        return watch, Fire(f"The agent has not moved for {silent:.0f} s (phase {seen.phase}).")
    if unseen >= BUDGET_SECONDS:
        return watch, Fire(f"All workers ended {unseen:.0f} s ago and the agent has not noticed.")
    return watch, None


def _unseen(seen: Observation) -> bool:
    return seen.phase == "monitoring" and seen.started > 0 and seen.running == 0 and not seen.stopping


def _same_group(seen: Observation, last: Observation) -> bool:
    return (seen.spawn, seen.started) == (last.spawn, last.started) and last.running == 0
