"""The first process inside a testbed: furnishes the namespaces, starts the parts, relays the API server's port.

Started by `lifecycle`, which reads the state that this program writes. It needs no way to stop: the kernel
ends everything with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.testbed import (
    apiserver,
    certificates,
    component,
    containerd,
    controller_manager,
    coredns,
    etcd,
    kubelet,
    network,
    operator,
    sandbox,
    scheduler,
    state,
)
from tests.cluster.testbed.layout import Testbed

PARTS: tuple[Callable[[Testbed], component.Component], ...] = (
    network.component,
    certificates.component,
    etcd.component,
    containerd.component,
    apiserver.component,
    controller_manager.component,
    scheduler.component,
    coredns.component,
    operator.component,
    kubelet.component,
)
"""Every part comes after what it needs."""


class Journal:
    """Keeps the state file true while parts start in several threads."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._begin = now()
        self._lock = threading.Lock()
        self.state = state.State("starting")

    def started(self, part: component.Component, pid: int | None, seconds: float) -> None:
        """A part is ready; `pid` is None for parts without a process."""
        with self._lock:
            self._save(self.state.with_part(state.Part(part.name, pid, round(seconds, 1))))

    def phase(self, phase: state.Phase, error: str = "") -> None:
        """The testbed as a whole is ready, or failed."""
        with self._lock:
            self._save(self.state.with_phase(phase, round(self._now() - self._begin, 1), error))

    def ended(self, pid: int, status: int) -> None:
        """A process ended by itself; most are none of the testbed's parts."""
        with self._lock:
            if any(part.pid == pid for part in self.state.parts):
                self._save(self.state.with_end(pid, status))

    def _save(self, new: state.State) -> None:
        self.state = new
        state.write(new, self._path)


def main(root: Path, listener: socket.socket) -> None:
    """Runs the testbed until it is killed; ends by itself only when a part does not start."""
    testbed = Testbed.read(root)
    journal = Journal(state.path(root))
    try:
        sandbox.enter(testbed)
        component.start_all([part(testbed) for part in PARTS], testbed.path("logs"), journal.started)
    except (component.StartError, OSError) as error:
        journal.phase("failed", str(error))
        raise SystemExit(1) from error
    journal.phase("ready")
    asyncio.run(_serve(testbed, listener, journal))


async def _serve(testbed: Testbed, listener: socket.socket, journal: Journal) -> None:
    def reap() -> None:
        for pid, status in _dead_children():
            journal.ended(pid, status)

    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap)
    reap()
    await asyncio.gather(network.relay(listener, testbed.port), network.relay(network.listen(), testbed.port))


def _dead_children() -> list[tuple[int, int]]:
    """Collects every child that has ended, orphans of the pods among them: the first process must."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead
        if pid == 0:
            return dead
        dead.append((pid, os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
