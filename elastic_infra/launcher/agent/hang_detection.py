"""When a worker hangs: a pure decision from the workers' reports and the kernel's state of their processes.

Only reported steps, and a worker that was stopped (state T), lead to a verdict. A script that reports nothing is never
ended here: when the script also uses no CPU for long enough, a suspicion is raised once, so that its stacks can be
written. Waiting at a stop step, saving after that step, and phases with time left do not count as silence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Final, Literal

from ..settings import HangTimeout
from ..workers.progress import Slot
from .steps import p99

FLOOR_SECONDS: Final = 600.0
"""The least threshold under "auto": NCCL's own default timeout for a collective."""
FACTOR: Final = 5.0
"""Under "auto" a step may take this many times the 99th percentile of the steps before it."""
WARM_UP: Final = 5
"""Steps before "auto" judges: the first ones compile and fill caches."""
STOPPED_SECONDS: Final = 5.0
"""A worker in state T for this long is a hang: only a debugger or a stray SIGSTOP puts a process into that state."""
PAUSE_SECONDS: Final = 5.0
"""Two looks further apart than this mean that the whole container was paused; silence counts anew from then."""
CLOCK_TICK_SECONDS: Final = 0.01
"""The kernel's unit of CPU time; less is noise."""
KEPT_INTERVALS: Final = 1000


@dataclasses.dataclass(frozen=True)
class Worker:
    """One living worker at the moment of a look."""

    slot: Slot
    state: str
    """The kernel's letter (``processes.Process.state``)."""
    cpu_seconds: float
    """CPU time used so far."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """One look at the local workers that are alive, by local rank."""

    now: float
    workers: Mapping[int, Worker]
    stop_step: int | None = None
    """The stop step proposed to the workers; one that has reached it waits and is not silent."""


@dataclasses.dataclass(frozen=True)
class Watch:
    """The state that earlier looks leave for the next one."""

    looked_at: float | None = None
    since: float = 0.0
    """Silence counts from here at the earliest."""
    last: Mapping[int, Slot] = dataclasses.field(default_factory=dict)
    intervals: tuple[float, ...] = ()
    """Seconds a step took, newest last."""
    stopped_since: Mapping[int, float] = dataclasses.field(default_factory=dict)
    cpu_seconds: float = 0.0
    idle_since: float = 0.0
    suspected: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The finding that a worker hangs (``hang``) or may hang (``suspected``)."""

    kind: Literal["hang", "suspected"]
    local_rank: int
    message: str


def decide(watch: Watch, seen: Seen, timeout: HangTimeout) -> tuple[Watch, Verdict | None]:
    """Take in one look; a verdict names the worker that has been silent longest."""
    watch = _remember(watch, seen)
    if timeout == "off" or not seen.workers:
        return watch, None
    verdict = _stopped(watch, seen) or _silent(watch, seen, timeout)
    if verdict is None and not watch.suspected:
        verdict = _suspicion(watch, seen, timeout)
        watch = dataclasses.replace(watch, suspected=verdict is not None)
    return watch, verdict


def threshold(watch: Watch, timeout: HangTimeout) -> float:
    """Seconds of silence that count as a hang now; infinite while "auto" has not seen enough steps."""
    if not isinstance(timeout, str):
        return timeout
    if timeout == "off" or len(watch.intervals) < WARM_UP:
        return math.inf
    return max(FACTOR * p99(watch.intervals), FLOOR_SECONDS)


def _remember(watch: Watch, seen: Seen) -> Watch:
    paused = watch.looked_at is None or seen.now - watch.looked_at > PAUSE_SECONDS
    cpu = sum(worker.cpu_seconds for worker in seen.workers.values())
    busy = paused or abs(cpu - watch.cpu_seconds) > CLOCK_TICK_SECONDS
    return Watch(
        looked_at=seen.now,
        since=seen.now if paused else watch.since,
        last={rank: worker.slot for rank, worker in seen.workers.items()},
        intervals=(*watch.intervals, *_new_intervals(watch, seen))[-KEPT_INTERVALS:],
        stopped_since={
            rank: seen.now if paused else watch.stopped_since.get(rank, seen.now)
            for rank, worker in seen.workers.items()
            if worker.state == "T"
        },
        cpu_seconds=cpu if busy else watch.cpu_seconds,
        idle_since=seen.now if busy else watch.idle_since,
        suspected=watch.suspected,
    )


def _new_intervals(watch: Watch, seen: Seen) -> list[float]:
    intervals = []
    for rank, worker in seen.workers.items():
        before = watch.last.get(rank)
        if before is not None and before.reports and worker.slot.reports > before.reports:
            steps = worker.slot.reports - before.reports
            intervals.append((worker.slot.at - before.at) / steps)
    return intervals


def _stopped(watch: Watch, seen: Seen) -> Verdict | None:
    for rank, since in watch.stopped_since.items():
        if seen.now - since >= STOPPED_SECONDS:
            return Verdict("hang", rank, f"Local rank {rank} has been stopped (state T) for {seen.now - since:.0f} s.")
    return None


def _silent(watch: Watch, seen: Seen, timeout: HangTimeout) -> Verdict | None:
    limit = threshold(watch, timeout)
    late: dict[int, tuple[float, str]] = {}
    for rank, worker in seen.workers.items():
        slot = worker.slot
        if slot.phase_until is not None:
            if seen.now > slot.phase_until:
                late[rank] = (slot.phase_until, f"is past the timeout of its phase after step {slot.step}")
        elif _is_late(slot, seen, watch.since, limit):
            late[rank] = (slot.at, f"has reported no step after {slot.step} for {seen.now - slot.at:.0f} s")
    if not late:
        return None
    rank = min(late, key=lambda rank: late[rank][0])
    return Verdict("hang", rank, f"Local rank {rank} {late[rank][1]}; {len(late)} of {len(seen.workers)} are late.")


def _is_late(slot: Slot, seen: Seen, since: float, limit: float) -> bool:
    if slot.step is None or slot.stopped:
        return False
    waits = seen.stop_step is not None and slot.step >= seen.stop_step
    return not waits and seen.now - max(slot.at, since) > limit


def _suspicion(watch: Watch, seen: Seen, timeout: HangTimeout) -> Verdict | None:
    limit = FLOOR_SECONDS if isinstance(timeout, str) else timeout
    if any(worker.slot.step is not None or worker.slot.phase_until is not None for worker in seen.workers.values()):
        return None
    idle = seen.now - watch.idle_since
    if idle <= limit:
        return None
    rank = min(seen.workers)
    return Verdict("suspected", rank, f"No worker has reported a step or used CPU for {idle:.0f} s.")
