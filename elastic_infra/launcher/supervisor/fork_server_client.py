"""The supervisor's view of the fork server: when to start it, and how to have it fork a worker.

Waited for only where it comes first, that is, where workers would import the same: until it is ready otherwise, and
whenever it does not answer at once, workers are started cold. ``workers.fork_server`` runs in the process itself.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import socket
import time
from collections.abc import Mapping
from typing import Final

from .. import ipc, processes
from ..command_line.plan import Plan
from ..run_dir import RunDir
from ..settings import LauncherSettings
from ..workers import import_scan, specs
from .fork_requests import ForkRequests, Held, Pending

QUIET_SECONDS: Final = 2.0
"""The first generation has stopped importing for this long: only then the fork server may take its CPU."""
LATEST_SECONDS: Final = 30.0
"""Start anyway after this long; the script may import nothing."""
LONGEST_REQUEST: Final = 1 << 22


@dataclasses.dataclass(frozen=True)
class Load:
    """What the fork server imports beside torch."""

    environ: Mapping[str, str]
    """Of every worker, whichever its place."""
    modules: tuple[str, ...]
    """As far as that is known before a worker has run."""
    comes_first: bool
    """The workers import the same anyway: it starts before them, and they wait for it while it loads."""


def load_of(plan: Plan, settings: LauncherSettings, environ: Mapping[str, str]) -> Load:
    """What this launch's fork server imports.

    It comes first where the program is seen to import torch: its workers would take as long by themselves, and those
    that are forked share one import.
    """
    program = import_scan.declared(plan.entrypoint, os.curdir)
    comes_first = specs.may_fork(plan, settings) and program.imports_torch
    return Load(specs.environ_of_any(plan, settings, environ), program.modules, comes_first)


@dataclasses.dataclass(frozen=True)
class Forked:
    """An answer: a worker waits for our word."""

    request: Pending | int
    """What it was asked for, or the generation that asked and is over."""
    pid: int


class ForkServer:
    """One fork server for the whole launch; it is not replaced when it ends."""

    def __init__(self, run_dir: RunDir, load: Load, now: float) -> None:
        self._run_dir = run_dir
        self._load = load
        self._wanted_at: float | None = -math.inf if load.comes_first else None
        self._load_by: float | None = now + ipc.LOAD_SECONDS if load.comes_first else None
        """CLOCK_MONOTONIC until which workers wait for it; None where they do not."""
        self._was_started = False
        self.pid = 0
        self._channel: socket.socket | None = None
        self.ready = False
        self.requests = ForkRequests()
        self.held: list[Held] = []

    @property
    def channel(self) -> socket.socket:
        """Our end of the connection; there is one once ``start`` was called."""
        if self._channel is None:
            message = "The fork server was not started."
            raise RuntimeError(message)
        return self._channel

    def want(self, now: float) -> None:
        """Have it started once the first workers have imported what they need."""
        if self._wanted_at is None:
            self._wanted_at = now

    def want_now(self) -> None:
        """Have it started as soon as may be."""
        self._wanted_at = -math.inf

    def is_due(self, now: float, wall: float) -> bool:
        """Whether it is to start."""
        if self._wanted_at is None or self._was_started:
            return False
        if now - self._wanted_at >= LATEST_SECONDS:
            return True
        try:
            return wall - os.stat(self._run_dir.modules).st_mtime >= QUIET_SECONDS
        except OSError:
            return False

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: it cannot be started.
        """
        self._was_started = True
        with open(self._run_dir.modules, "a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in self._load.modules)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_REQUEST)
        self._channel.settimeout(1.0)
        theirs.set_inheritable(True)
        argv = (
            self._run_dir.interpreter,
            "-u",
            self._run_dir.fork_server,
            str(theirs.fileno()),
            str(os.getpid()),
            self._run_dir.modules,
        )
        with theirs:
            environ = {**self._load.environ, specs.LAUNCH: self._run_dir.launch_id}
            self.pid = processes.start(argv, environ, None, None)

    def request(self, generation: int, spec: ipc.WorkerSpec) -> bool:
        """Ask for a worker, at once or when it is ready; False when it must be started cold."""
        if self._load_by is not None:
            self.held.append(Held(generation, spec))
            return True
        return self.ready and self._ask(generation, spec)

    def take_held(self) -> tuple[Held, ...]:
        """The workers that waited; no other will."""
        held = tuple(self.held)
        self.held.clear()
        self._load_by = None
        return held

    def _ask(self, generation: int, spec: ipc.WorkerSpec) -> bool:
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
        self.requests.add(number, Pending(generation, spec, writer), time.monotonic())
        return True

    def receive(self) -> Forked | str | None:
        """One message: a worker, a line on what happened, or None when the process is gone."""
        try:
            data = self.channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return None
        message = json.loads(data)
        if "pid" in message:
            return Forked(self.requests.answer(message["request"], time.monotonic()), message["pid"])
        self.ready = "ready" in message
        if not self.ready:
            return f"cold starts only: {message['failed']}"
        dropped = ", ".join(message["dropped"])
        left_out = f"; left out: {dropped}" if dropped else ""
        return f"{message['ready']} modules loaded, {message['megabytes']} MB{left_out}"

    def is_late(self, now: float) -> bool:
        """Whether a request has waited too long."""
        is_loading_long = bool(self.held) and self._load_by is not None and now >= self._load_by
        return is_loading_long or (self.requests.late_at is not None and now >= self.requests.late_at)

    def waiting(self, generation: int) -> int:
        """Workers of this generation that are to run and have no pid yet."""
        return sum(each.generation == generation for each in (*self.held, *self.requests.wanted.values()))

    def release(self, pending: Pending) -> None:
        """Let a worker run."""
        os.write(pending.go, b"1")
        os.close(pending.go)

    def forget(self, generation: int) -> None:
        """The generation ends before these workers ran: they end too."""
        for pending in self.requests.forget(generation):
            os.close(pending.go)
        self.held = [held for held in self.held if held.generation != generation]

    def reaped(self, pid: int) -> None:
        """A child of ours is gone, and its pid may be another process's soon."""
        if pid == self.pid:
            self.pid = 0

    def close(self) -> None:
        """End it for good."""
        self.kill()
        if self._channel is not None:
            self._channel.close()

    def kill(self) -> tuple[Held, ...]:
        """End it; returns the workers that must now be started cold."""
        pending = self.requests.clear()
        for each in pending:
            os.close(each.go)
        self.ready = False
        if self.pid:
            processes.send(self.pid, signal.SIGKILL)
            self.pid = 0  # from now on it is an orphan among others, and waited for like them
        return (*self.take_held(), *pending)
