"""Which processes this launch may kill: those that it started, and what those started.

The launcher may have children that it never started: the shell that became the launcher by ``exec`` had started a
sidecar, a FUSE mount or a database proxy. As the reaper of its subtree the launcher also gets the orphans of these
children.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping

from .. import processes
from ..run_dir import RunDir
from ..workers import specs


@dataclasses.dataclass(frozen=True)
class Owner:
    """The marks that distinguish this launch's orphans from others."""

    supervisor: int
    """Pid of the supervisor, to which orphans come (``PR_SET_CHILD_SUBREAPER``)."""
    mark: bytes
    """``NAME=value`` in the environment of every worker of this launch."""
    before: frozenset[tuple[int, int]] = frozenset()
    """Pids of the children from before the launch."""

    def owns(self, process: processes.Process) -> bool:
        """Whether an orphan may be killed: this launch's, or one that holds an accelerator, which the workers need.

        An orphan that is ending shows no marks any more and counts as this launch's: the launcher waits for its end.
        """
        if process.parent != self.supervisor or process.identity in self.before:
            return False
        if process.is_ending:
            return True
        return self.mark in processes.environ(process.pid) or processes.holds_accelerator(process.pid)


def here(run_dir: RunDir) -> Owner:
    """The owner in this process; call before it starts a child."""
    me = os.getpid()
    before = frozenset(process.identity for process in processes.scan() if process.parent == me)
    return Owner(me, f"{specs.LAUNCH}={run_dir.launch_id}".encode(), before)


def members(
    table: Iterable[processes.Process], leaders: Mapping[int, int], *, owner: Owner, known: Collection[int]
) -> tuple[processes.Process, ...]:
    """The processes that belong to these groups, and this launch's orphans.

    A worker's child that has left for another session is recognised once its parent is dead.

    Args:
        table: the process table.
        leaders: ids of the process groups, with the start of the process that led each: where another process has
            the pid by now, the group is no longer ours.
        owner: the launch to which orphans must belong.
        known: the supervisor's other children.
    """
    table = tuple(table)
    starts = {process.pid: process.started for process in table}
    ours = {leader for leader, started in leaders.items() if starts.get(leader, started) == started}
    return tuple(
        process
        for process in table
        if process.pid not in known
        and process.pid != owner.supervisor
        and (process.group in ours or process.session in ours or owner.owns(process))
    )
