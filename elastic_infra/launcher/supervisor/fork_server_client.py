"""The supervisor's view of the fork server: when to start it, and how to have it fork a worker.

Workers wait for the fork server only where it comes first, that is, where they would import the same. In all other
cases workers are started cold until the fork server is ready, and whenever it does not answer at once.
``workers.fork_server`` runs in the process itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import socket
import time
from collections.abc import Collection, Mapping
from typing import Final, Literal

from .. import ipc, processes
from ..command_line.plan import Entrypoint, Plan
from ..run_dir import RunDir
from ..settings import LauncherSettings
from ..workers import import_scan, specs
from .fork_requests import ForkRequests, Held, Pending

QUIET_SECONDS: Final = 2.0
"""The workers of the first generation must have imported nothing for this long before the fork server may use the
CPU."""
LATEST_SECONDS: Final = 30.0
"""The fork server starts after this long in any case; the script may import nothing."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the workers' import records."""
PAUSE: Final = 4.0
"""After a load beside the workers the fork server rests for this many times as long, to leave them the CPU."""
LONGEST_REQUEST: Final = 1 << 22


@dataclasses.dataclass(frozen=True)
class Load:
    """The imports of the fork server beside torch."""

    environ: Mapping[str, str]
    """The variables that all workers of this node share."""
    entrypoint: Entrypoint
    modules: tuple[str, ...]
    """The modules known before a worker has run."""
    differing: tuple[str, ...]
    """Names of the variables that differ between workers."""
    comes_first: bool
    """Whether the workers import the same in any case: the fork server then starts first, and the workers wait for
    it."""


def load_of(plan: Plan, settings: LauncherSettings, environ: Mapping[str, str]) -> Load:
    """What this launch's fork server imports.

    The fork server comes first where the program is seen to import torch: a cold worker takes as long by itself, and
    forked workers share one import.
    """
    program = import_scan.declared(plan.entrypoint, os.curdir)
    comes_first = specs.may_fork(plan, settings) and program.imports_torch
    modules = program.modules if comes_first else (import_scan.DYNAMO,) * program.needs_dynamo
    shared = specs.environ_of_any(plan, settings, environ)
    return Load(shared, plan.entrypoint, modules, specs.differing(plan), comes_first)


@dataclasses.dataclass(frozen=True)
class Forked:
    """An answer of the fork server: a forked worker that waits for the order to run."""

    request: Pending | int
    """The request behind it, or the number of the spawn that asked and is over."""
    pid: int


class ForkServer:
    """The one fork server of a launch, which is not replaced when it ends."""

    def __init__(self, run_dir: RunDir, load: Load, now: float) -> None:
        self._run_dir = run_dir
        self._load = load
        self._wanted_at: float | None = -math.inf if load.comes_first else None
        self._load_by: float | None = now + ipc.LOAD_SECONDS if load.comes_first else None
        """CLOCK_MONOTONIC until which workers wait for the fork server; None where they do not."""
        self._was_started = False
        self.pid = 0
        self._channel: socket.socket | None = None
        self.ready = False
        self._read_size = 0
        """Bytes of the workers' import records that the fork server has seen."""
        self._more_at = 0.0
        """CLOCK_MONOTONIC from which the fork server may be asked to load more."""
        self._more_since: float | None = None
        """Of the load under way beside the workers; None: only the first load was asked for, which is owed no rest."""
        self._loaded = 0
        self._left_out: list[str] = []
        self.requests = ForkRequests()
        self.held: list[Held] = []

    @property
    def channel(self) -> socket.socket:
        """The supervisor's end of the connection, which exists once ``start`` was called."""
        if self._channel is None:
            message = "The fork server was not started."
            raise RuntimeError(message)
        return self._channel

    def want(self, now: float) -> None:
        """Have the fork server started once the first workers have imported their modules."""
        if self._wanted_at is None:
            self._wanted_at = now

    def want_now(self) -> None:
        """Have the fork server started at the next look."""
        self._wanted_at = -math.inf

    def is_due(self, now: float, wall: float) -> bool:
        """Whether the fork server is to start now."""
        if self._wanted_at is None or self._was_started:
            return False
        if now - self._wanted_at >= LATEST_SECONDS or self._load_by is not None:
            return True
        newest, size = self._records()
        return size > 0 and wall - newest >= QUIET_SECONDS

    def _records(self) -> tuple[float, int]:
        """When a worker last recorded an import, in seconds since the epoch, and the size of all records."""
        with os.scandir(self._run_dir.modules) as entries:
            found = [entry.stat() for entry in entries]
        return max((each.st_mtime for each in found), default=0.0), sum(each.st_size for each in found)

    def load_more(self, now: float, wall: float) -> None:
        """Have the fork server import the recorded modules, once workers are quiet; it forks workers meanwhile."""
        if not self.ready or now < self._more_at:
            return
        self._more_at = now + LOOK_SECONDS
        newest, size = self._records()
        if size > self._read_size and wall - newest >= QUIET_SECONDS:
            self._read_size, self._more_at, self._more_since = size, math.inf, now
            with contextlib.suppress(OSError):  # a fork server that is gone is seen at the next read
                self.channel.send(json.dumps({"load": True}).encode())

    def start(self) -> None:
        """Start the fork server's process.

        Raises:
            OSError: the process cannot be started.
        """
        self._was_started = True
        self._read_size = self._records()[1]
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_REQUEST)
        self._channel.settimeout(1.0)
        theirs.set_inheritable(True)
        task = {
            "socket": theirs.fileno(),
            "supervisor": os.getpid(),
            "kind": self._load.entrypoint.kind,
            "target": self._load.entrypoint.target,
            "declared": self._load.modules,
            "folder": self._run_dir.modules,
            "differing": self._load.differing,
        }
        argv = (self._run_dir.interpreter, "-u", self._run_dir.fork_server, json.dumps(task))
        with theirs:
            environ = {**self._load.environ, specs.LAUNCH: self._run_dir.launch_id}
            self.pid = processes.start(argv, environ, None, None)

    def request(self, spawn: int, spec: ipc.WorkerSpec) -> bool:
        """Ask for a worker, at once or when the fork server is ready; False when the worker must be started cold."""
        if self._load_by is not None:
            self.held.append(Held(spawn, spec))
            return True
        return self.ready and self._ask(spawn, spec)

    def take_held(self) -> tuple[Held, ...]:
        """The workers that waited for the fork server; no further worker will wait."""
        held = tuple(self.held)
        self.held.clear()
        self._load_by = None
        return held

    def _ask(self, spawn: int, spec: ipc.WorkerSpec) -> bool:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        number = self.requests.next_number()
        job = json.dumps({"request": number, **dataclasses.asdict(spec)}).encode()
        try:
            socket.send_fds(self.channel, [job], [reader])
        except OSError:
            os.close(writer)
            return False
        finally:
            os.close(reader)
        self.requests.add(number, Pending(spawn, spec, writer), time.monotonic())
        return True

    def receive(self) -> Forked | ipc.ForkServerState | Literal["nothing new"] | None:
        """One message: a forked worker, a notice for the agent, or None when the process is gone."""
        try:
            data = self.channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return None
        message = json.loads(data)
        if "pid" in message and not self.requests.outstanding:
            return (
                "nothing new"  # the fork server was killed between its answer and now, and with it this worker's pipe
            )
        if "pid" in message:
            return Forked(self.requests.answer(message["request"], time.monotonic()), message["pid"])
        self.ready = "ready" in message
        if not self.ready:
            return ipc.ForkServerState(ready=False, message=f"cold starts only: {message['failed']}")
        now = time.monotonic()
        seconds = 0.0 if self._more_since is None else now - self._more_since
        self._more_at = now + max(LOOK_SECONDS, PAUSE * seconds)
        new = [each for each in message["dropped"] if each not in self._left_out]
        if message["ready"] == self._loaded and not new:
            return "nothing new"
        self._left_out += new
        self._loaded = message["ready"]
        left_out = f"; left out: {', '.join(self._left_out)}" if self._left_out else ""
        line = f"{message['ready']} modules loaded, {message['megabytes']} MB{left_out}"
        return ipc.ForkServerState(ready=True, message=line, left_out=tuple(new))

    def is_late(self, now: float) -> bool:
        """Whether a request has waited too long."""
        is_loading_long = bool(self.held) and self._load_by is not None and now >= self._load_by
        return is_loading_long or (self.requests.late_at is not None and now >= self.requests.late_at)

    def waiting(self, spawn: int) -> int:
        """Workers of this spawn that are to run and have no pid yet."""
        return sum(each.spawn == spawn for each in (*self.held, *self.requests.wanted.values()))

    def release(self, pending: Pending) -> None:
        """Give a forked worker the order to run; one that has died already is reaped as any other."""
        with contextlib.suppress(BrokenPipeError):
            os.write(pending.go, b"1")
        os.close(pending.go)

    def forget(self, spawn: int, local_ranks: Collection[int] | None = None) -> list[int]:
        """End workers of a spawn before they ran: those of these local ranks, or all; returns their local ranks."""

        def is_meant(worker: Held) -> bool:
            return worker.spawn == spawn and (local_ranks is None or worker.spec.local_rank in local_ranks)

        pending = self.requests.forget(is_meant)
        for each in pending:
            os.close(each.go)
        held = [each for each in self.held if is_meant(each)]
        self.held = [each for each in self.held if not is_meant(each)]
        return [each.spec.local_rank for each in (*pending, *held)]

    def reaped(self, pid: int) -> None:
        """Take down that a child was reaped: its pid may soon be another process's."""
        if pid == self.pid:
            self.pid = 0

    def close(self) -> None:
        """End the fork server without a successor."""
        self.kill()
        if self._channel is not None:
            self._channel.close()

    def kill(self) -> tuple[Held, ...]:
        """Kill the fork server; returns the workers that must now be started cold."""
        pending = self.requests.clear()
        for each in pending:
            os.close(each.go)
        self.ready = False
        if self.pid:
            processes.send(self.pid, signal.SIGKILL)
            self.pid = 0  # from now on the process is an orphan like others, and is reaped as they are
        return (*self.take_held(), *pending)
