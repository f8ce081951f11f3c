"""The supervisor's record of the local workers of one spawn, and how their end is enforced.

A worker leads its own process group, in which its children (data loaders) live. Ending a group means: the first signal
to the workers alone, so that their children serve them while they save; SIGKILL to the whole group at the deadline, or
as soon as the workers are gone; then a wait until the kernel lists no process of the group. A process that is reaped
has closed every file, accelerators included, so no ended process still holds a device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Collection, Iterable
from typing import Final, Literal

from .. import processes
from . import stack_dumps

STUCK_SECONDS: Final = 30.0
"""How long a killed process may take to vanish (a driver that releases memory) before the launcher gives up."""

SUSPENDED_SECONDS: Final = 3.0
"""How long workers past the dead-man timer's deadline stay stopped while the agent asks the store whether their
generation stands: as long as one call to the store may take."""

First = Literal["SIGTERM", "stacks", "SIGKILL", "none"]


@dataclasses.dataclass
class WorkerProcesses:
    """The worker processes of one spawn on this node."""

    spawn: int
    alive: dict[int, int] = dataclasses.field(default_factory=dict)
    """Local rank by pid, of workers not yet reaped."""
    leaders: dict[int, int] = dataclasses.field(default_factory=dict)
    """Start (``processes.Process.started``) by pid of every worker, reaped or not: the ids of the process groups."""
    unwanted: set[int] = dataclasses.field(default_factory=set)
    """Pids of workers that were forked after the end had begun: killed and not yet reaped."""
    deadline: float | None = None
    """CLOCK_MONOTONIC at which the whole group is killed; None while the group may run."""
    killed_at: float | None = None
    killed: list[int] = dataclasses.field(default_factory=list)
    """Local ranks that had to be killed."""
    suspended_until: float | None = None
    """CLOCK_MONOTONIC until which the workers are suspended (SIGSTOP); None while they are not."""
    orphaned: bool = False
    """Whether the dead-man timer ended the group."""
    dump: stack_dumps.Dump | None = None
    """The workers that are writing their stacks, in turn; None: none is."""

    def add(self, pid: int, local_rank: int) -> None:
        """Take in a worker that runs, or that ended and is not reaped yet."""
        self.alive[pid] = local_rank
        process = processes.read(pid)
        self.leaders[pid] = process.started if process else 0
        if self.suspended_until is not None:
            _signal_group(pid, signal.SIGSTOP)

    def suspend(self, now: float) -> None:
        """Stop the workers and their children where they are."""
        self.suspended_until = now + SUSPENDED_SECONDS
        for pid in self.alive:
            _signal_group(pid, signal.SIGSTOP)

    def resume(self, now: float) -> bool:
        """Let suspended workers go on; False where they are not suspended, or have been for too long."""
        if self.suspended_until is None or now >= self.suspended_until:
            return False
        self.suspended_until = None
        for pid in self.alive:
            _signal_group(pid, signal.SIGCONT)
        return True

    def give_up(self, now: float) -> None:
        """End workers that were suspended for too long."""
        if self.suspended_until is not None and now >= self.suspended_until:
            self.suspended_until, self.orphaned = None, True
            self.stop("SIGKILL", 0.0, now)

    def stop(self, first: First, grace_seconds: float, now: float) -> None:
        """Begin the end, or bring it forward: a deadline is never moved later."""
        bounds = {"SIGKILL": 0.0, "stacks": stack_dumps.WRITE_SECONDS * len(self.alive)}
        deadline = now + bounds.get(first, grace_seconds)
        self.deadline = deadline if self.deadline is None else min(deadline, self.deadline)
        if first == "SIGTERM":
            for pid in self.alive:
                processes.send(pid, signal.SIGTERM)
        elif first == "stacks" and not (self.dump and self.dump.ends_workers):
            self.dump = stack_dumps.of_ending(self.alive)

    def kill_workers(self, local_ranks: Collection[int]) -> None:
        """SIGKILL to these workers and their children."""
        for pid, rank in self.alive.items():
            if rank in local_ranks:
                _signal_group(pid, signal.SIGKILL)

    def dump_stacks(self) -> None:
        """Have the workers write their stacks and live on, unless they are ending."""
        if self.deadline is None:
            self.dump = stack_dumps.of_living(self.alive)

    def go_on(self, now: float) -> None:
        """Ask the next worker for its stacks, if it is time."""
        if self.dump and not self.must_die(now):
            self.dump.go_on(self.alive, now)

    def is_busy(self, now: float) -> bool:
        """Whether the supervisor must look again soon, even if no message comes."""
        return self.must_die(now) or (self.dump is not None and not self.dump.is_over(self.alive, now))

    def must_die(self, now: float) -> bool:
        """Whether the remaining processes are to be killed now."""
        return self.deadline is not None and (not self.alive or now >= self.deadline)

    def kill(self, members: Iterable[processes.Process], now: float) -> None:
        """Send SIGKILL to every remaining process."""
        if self.killed_at is None:
            self.killed_at = now
            self.killed = sorted(self.alive.values())
        for process in members:
            processes.send(process.pid, signal.SIGKILL)
        for leader in self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)

    def is_stuck(self, now: float) -> bool:
        """Whether killed processes have not vanished in time."""
        return self.killed_at is not None and now - self.killed_at > STUCK_SECONDS


def _signal_group(leader: int, number: int) -> None:
    """Signal a worker and its children; a worker that was only just forked leads no group yet."""
    processes.send(leader, number)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def describe(stuck: Iterable[processes.Process]) -> str:
    """Names for a message: pid and state."""
    return ", ".join(f"{process.pid} (state {process.state})" for process in stuck)
