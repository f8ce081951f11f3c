"""The local worker group as the agent sees it: its files, its progress, and why a worker ended.

The group prepares a generation's start (folders, progress memory, command lines) and reads the files that workers
leave. The supervisor starts and ends the processes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Final

from .. import console, ipc, processes
from ..command_line.option_values import Stream
from ..command_line.plan import Plan
from ..protocol.actions import StartWorkers
from ..run_dir import RunDir
from ..settings import LauncherSettings
from ..workers import channel, failures, logs, progress, specs
from . import hang_detection

_DESCRIPTORS: Final[Mapping[Stream, int]] = {"stdout": 1, "stderr": 2}


class WorkerGroup:
    """One node's workers, generation after generation; at most one generation has files open."""

    def __init__(self, plan: Plan, settings: LauncherSettings, environ: Mapping[str, str], run_dir: RunDir) -> None:
        self._plan = plan
        self._settings = settings
        self._environ = environ
        self._run_dir = run_dir
        self._start: StartWorkers | None = None
        self._spawns = 0
        """Number of times that all workers were started."""
        self.spawn = 0
        """The number by which supervisor and agent name these workers; 0: none runs."""
        self._memory: progress.Memory | None = None
        self._tails: list[logs.Tail] = []
        """Those of this generation, and of earlier ones whose reader has not taken all output."""
        self._newest: dict[str, logs.Tail] = {}
        """The newest tail of each stream."""
        self._targets: tuple[logs.Destination, ...] = ()
        self._planned: tuple[ipc.WorkerSpec, ...] = ()
        self._failures: list[failures.Failure] = []
        self._succeeded: list[int] = []
        """Ranks of this generation that exited 0."""
        self._pids: dict[int, int] = {}
        self._stop_step: int | None = None
        self._hangs = hang_detection.Watch()

    def start(self, start: StartWorkers) -> ipc.Spawn:
        """Prepare a generation's workers.

        Raises:
            OSError: folders or the progress memory cannot be made.
        """
        self.close()
        plan, run_dir = self._plan, self._run_dir
        self._begin(start)
        self._spawns += 1
        self.spawn, self._pids = self._spawns, {}
        self._targets = logs.destinations(plan.logs, run_dir.logs, start.generation, start.local_world_size)
        logs.make_folders(self._targets)
        self._forget_errors(kept=())
        path = run_dir.progress(self.spawn)
        self._memory = progress.Memory.create(path, start.local_world_size)
        self._follow(start)
        return ipc.Spawn(self.spawn, self._plan_workers(start, path), warm=self.is_warm)

    def move(self, start: StartWorkers, kept: tuple[int, ...]) -> ipc.Spawn:
        """Prepare the workers that live on for another generation; returns the workers to start in place of the others.

        Logs, progress memory and processes stay; steps and ends of the last generation are forgotten, and so are the
        phases and errors of the workers that ended.

        Args:
            start: the node's place in that generation.
            kept: local ranks of the workers that live on.
        """
        memory = self._memory
        if memory is None:
            message = "No worker runs here that could be moved."
            raise RuntimeError(message)
        self._begin(start)
        memory.set_stop(None, agreed=False)
        memory.forget_steps(kept)
        missing = [spec for spec in self._plan_workers(start, memory.path) if spec.local_rank not in kept]
        self._forget_errors(kept)
        return ipc.Spawn(self.spawn, tuple(missing), warm=self.is_warm)

    def _forget_errors(self, kept: tuple[int, ...]) -> None:
        """Delete the error files of workers that ended, whose places others take."""
        for target in self._targets:
            if target.local_rank not in kept and target.error_file:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(target.error_file)

    def enters(self) -> dict[int, channel.Enter]:
        """The place of each local rank in the current generation, for workers that can be moved."""
        number = self._start.generation if self._start else 0
        behind = self._start is not None and self._start.behind
        return {spec.local_rank: channel.Enter(number, specs.place_of(spec.env), behind) for spec in self._planned}

    def withdraw_stop(self) -> None:
        """Let workers that wait at a stop step go on: their generation is over."""
        if self._memory:
            self._memory.set_stop(None, agreed=False)

    def _begin(self, start: StartWorkers) -> None:
        self._start = start
        self._failures, self._succeeded = [], []
        self._stop_step, self._hangs = None, hang_detection.Watch()

    def _plan_workers(self, start: StartWorkers, path: str) -> tuple[ipc.WorkerSpec, ...]:
        run_dir = self._run_dir
        modules = run_dir.modules if self.is_warm else ""
        files = specs.Files(
            *(self._targets, path, run_dir.interpreter, run_dir.bootstrap, run_dir.launch_id, modules, run_dir.channel)
        )
        self._planned = specs.plan(start, self._plan, self._settings, self._environ, files)
        return self._planned

    def read(self) -> tuple[progress.Slot, ...]:
        """The reports of the current generation's workers; empty without a generation."""
        return self._memory.read() if self._memory else ()

    def started(self, message: ipc.WorkerStarted) -> None:
        """Take down the pid of a worker of the current generation."""
        if message.spawn == self.spawn:
            self._pids[message.local_rank] = message.pid

    def ended(self, message: ipc.WorkerEnded) -> None:
        """Take down that a worker ended: its silence is no hang."""
        if self._start and message.spawn == self.spawn:
            self._pids.pop(message.local_rank, None)
            if message.exit_code == 0:
                self._succeeded.append(self._start.first_rank + message.local_rank)

    @property
    def running(self) -> int:
        """Number of workers that run."""
        return len(self._pids)

    def look_for_hangs(self, now: float) -> hang_detection.Verdict | None:
        """Apply the hang rules to the living workers' reports and CPU use."""
        slots = self.read()
        seen = {}
        for rank, pid in self._pids.items():
            process = processes.read(pid)
            if process is not None and rank < len(slots):
                seen[rank] = hang_detection.Worker(slots[rank], process.state, process.cpu_seconds)
        looked = hang_detection.Seen(now, seen, self._stop_step)
        self._hangs, verdict = hang_detection.decide(self._hangs, looked, self._settings.hang_timeout_seconds)
        return verdict

    def set_stop(self, generation: int, step: int | None, *, agreed: bool) -> None:
        """Propose, agree or withdraw the stop step; a generation that is over is left alone."""
        if self._memory and self._start and self._start.generation == generation:
            self._memory.set_stop(step, agreed=agreed)
            self._stop_step = step

    def set_leaving(self) -> None:
        """Tell the workers that this node was told to leave."""
        if self._memory:
            self._memory.set_leaving()

    def failure(self, ended: ipc.WorkerEnded, finished: Sequence[int] = ()) -> failures.Failure:
        """Why a worker of the current generation ended badly by itself.

        Args:
            ended: how the worker ended.
            finished: ranks of other nodes that are known to have exited 0.
        """
        start = self._start
        path = self._targets[ended.local_rank].error_file if self._targets else ""
        error, trace, at = failures.read_error_file(path) if path else ("", "", None)
        failure = failures.Failure(
            rank=(start.first_rank if start else 0) + ended.local_rank,
            local_rank=ended.local_rank,
            generation=start.generation if start else 0,
            attempt=start.attempt if start else 0,
            host=socket.gethostname(),
            pid=ended.pid,
            exit_code=ended.exit_code,
            error=ended.error or error,
            traceback=trace,
            at=time.time() if at is None else at,
            ended_early=tuple(sorted({*self._succeeded, *finished})[: failures.MOST_EARLY]),
            on_purpose=failures.is_on_purpose(self._settings.fault_record, ended.pid),
        )
        self._failures.append(failure)
        return failure

    def exception(self, local_rank: int) -> str:
        """The name of the exception in the error file of a worker of the current generation; empty without one."""
        path = self._targets[local_rank].error_file if local_rank < len(self._targets) else ""
        return failures.exception_name(failures.read_error_file(path)[0]) if path else ""

    def root_cause(self) -> dict[str, object]:
        """The report of the generation's first failure so far; empty without one."""
        first = failures.root_cause(self._failures)
        return first.report() if first else {}

    def close(self) -> None:
        """Have the last lines copied to the console and close the progress memory; call once the workers are gone."""
        for tail in self._tails:
            tail.finish()
        if self._memory:
            self._memory.close()
        self._memory, self.spawn = None, 0

    def deliver(self, seconds: float) -> list[str]:
        """Wait at most so many seconds until all teed output is read; returns the files with unread output."""
        self.close()
        deadline = time.monotonic() + seconds
        for tail in self._tails:
            tail.join(max(0.0, deadline - time.monotonic()))
        return [path for tail in self._tails for path in tail.left()]

    def _follow(self, start: StartWorkers) -> None:
        self._tails = [tail for tail in self._tails if tail.is_alive()]
        host = socket.gethostname()
        logging = self._plan.logs
        words: Mapping[Stream, Sequence[str]] = {
            "stdout": logging.stdout_filters,
            "stderr": logging.stderr_filters,
        }
        for stream, descriptor in _DESCRIPTORS.items():
            sources = [
                (path, logs.prefix(logging, self._plan.role, rank, start.first_rank + rank, host))
                for rank, path in logs.teed(self._targets, stream)
            ]
            if not sources:
                continue
            write = functools.partial(console.write_all, descriptor)
            # Workers on standby that ended have left lines in the folder of the generation that they were to enter.
            tail = logs.Tail(sources, write, after=self._newest.get(stream), from_end=True)
            self._newest[stream] = tail
            self._tails.append(tail)
            if words[stream]:
                copy = os.path.join(
                    logs.generation_folder(self._run_dir.logs, start.generation), f"filtered_{stream}.log"
                )
                self._tails.append(logs.Tail(sources, logs.Appender(copy), words=words[stream], from_end=True))
        for tail in self._tails:
            if tail.ident is None:
                tail.start()

    @property
    def channel(self) -> str:
        """Path of the socket for workers that can be moved."""
        return self._run_dir.channel

    @property
    def is_warm(self) -> bool:
        """Whether workers may be forked from a fork server."""
        return specs.may_fork(self._plan, self._settings)
