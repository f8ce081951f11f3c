"""torch's own rendezvous as the control: a ``DynamicRendezvousHandler`` over a ``TCPStore``, each node a process.

    python -m benchmarks.rendezvous.c10d NODES [IDLE_SECONDS]

Forms a round of NODES + 1 nodes, loses one and admits another; prints the figures as JSON. All processes are forked
from this one, which has imported torch and has no other thread.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, create_handler

from benchmarks.launcher.arms import TUNED
from benchmarks.rendezvous.report import IDLE, PATIENCE, SILENT
from tests.ports import free_port

MONITOR_SECONDS: Final = 0.1
"""An agent of torchrun looks after its workers, and for waiting nodes, so often by default."""
NEXT: Final = b"n"
"""Tells a node to join the next round."""
ORDER: Final = ("form", SILENT, "newcomer")
"""The changes as they are measured."""
Figures = dict[str, "float | str"]


class NotReachedError(Exception):
    """A round did not come, and why."""


class Nodes:
    """The store and the nodes, by index."""

    def __init__(self, limit: int) -> None:
        self.port = free_port()
        self.limit = limit
        self.told, self._tell = os.pipe()
        self.store = _forked(lambda: _serve(self.port))
        self.pids: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self.entered: dict[int, tuple[int, int, float]] = {}
        """Round, nodes in it and the moment at which a node entered it, by index."""
        self.ready: set[int] = set()
        self._text = b""

    def add(self, index: int) -> None:
        """Start a node, which connects and then waits to be told."""
        begin, end = os.pipe()
        self.pids[index] = _forked(lambda: Node(index, self.port, self.limit, begin, self._tell).run())
        self._ends[index] = end

    def tell(self, index: int) -> None:
        """A node is to join the next round."""
        os.write(self._ends[index], NEXT)

    def kill(self, index: int) -> None:
        """A machine is gone."""
        self.ready.discard(index)
        self.entered.pop(index, None)
        os.kill(pid := self.pids.pop(index), signal.SIGKILL)
        os.waitpid(pid, 0)

    def await_(self, condition: Callable[[], bool]) -> None:
        """Listen to the nodes until it holds.

        Raises:
            NotReachedError: a node ended, or patience did.
        """
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                message = f"over {PATIENCE:g}"
                raise NotReachedError(message)
            if select.select([self.told], [], [], MONITOR_SECONDS)[0]:
                self._hear(os.read(self.told, 1 << 16))
            elif os.waitpid(-1, os.WNOHANG)[0]:
                message = "a node gave up"
                raise NotReachedError(message)

    def wait_for(self, nodes: int) -> float:
        """When the last of so many nodes entered a round of all of them."""
        self.await_(lambda: self._are_together(nodes))
        return max(at for _, _, at in self.entered.values())

    def close(self) -> None:
        """No process is left."""
        for pid in (*self.pids.values(), self.store):
            os.kill(pid, signal.SIGKILL)

    def _are_together(self, nodes: int) -> bool:
        rounds = {number for number, world, _ in self.entered.values() if world == nodes}
        return len(self.entered) == nodes and len(rounds) == 1 and all(w == nodes for _, w, _ in self.entered.values())

    def _hear(self, data: bytes) -> None:
        *lines, self._text = (self._text + data).split(b"\n")
        for index, *entered in map(json.loads, lines):
            if entered and index in self.pids:
                self.entered[index] = entered
            self.ready.add(index)


class Node:
    """What an agent of torchrun does about membership."""

    def __init__(self, index: int, port: int, limit: int, commands: int, told: int) -> None:
        self.index, self.commands, self.told = index, commands, told
        self.handler = _handler(port, limit)

    def run(self) -> None:
        """Join each round that comes, once told to join the first."""
        self._tell()
        os.read(self.commands, 1)
        while True:
            info = self.handler.next_rendezvous()
            self._tell(self.handler._state_holder.state.round, info.world_size, time.monotonic())  # noqa: SLF001
            while self.handler.num_nodes_waiting() == 0:
                if select.select([self.commands], [], [], MONITOR_SECONDS)[0]:
                    os.read(self.commands, 1)
                    break

    def _tell(self, *entered: float) -> None:
        os.write(self.told, json.dumps([self.index, *entered]).encode() + b"\n")


def measure(nodes: int, idle_seconds: float) -> Figures:
    """Every figure of one size; of those that did not come, why."""
    figures: Figures = {}
    system = Nodes(nodes + 1)
    try:
        for part in (_form, _stand_idle, _lose, _newcomer):
            figures |= part(system, nodes, idle_seconds)
    except NotReachedError as error:
        missing = next(name for name in ORDER if name not in figures)
        figures[missing] = str(error)
    finally:
        system.close()
    return figures


def _form(system: Nodes, nodes: int, _: float) -> Figures:
    for index in range(nodes + 1):
        system.add(index)
    system.await_(lambda: len(system.ready) == nodes + 1)
    for index in system.pids:
        system.tell(index)
    begin = time.monotonic()
    return {"form": system.wait_for(nodes + 1) - begin}


def _stand_idle(system: Nodes, _: int, seconds: float) -> Figures:
    time.sleep(min(seconds, 2.0))
    begin, before = time.monotonic(), cpu_seconds(system.store)
    time.sleep(seconds)
    return {IDLE: 100 * (cpu_seconds(system.store) - before) / (time.monotonic() - begin)}


def _lose(system: Nodes, nodes: int, _: float) -> Figures:
    """A killed node is no other than a silent one here: heartbeats that do not come."""
    begin = time.monotonic()
    system.kill(nodes)
    for index in system.pids:
        system.tell(index)
    seconds = system.wait_for(nodes) - begin
    return {SILENT: seconds}


def _newcomer(system: Nodes, nodes: int, seconds: float) -> Figures:
    system.add(nodes + 1)
    system.await_(lambda: nodes + 1 in system.ready)
    time.sleep(min(seconds, 1.0))
    begin = time.monotonic()
    system.tell(nodes + 1)
    return {"newcomer": system.wait_for(nodes + 1) - begin}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, with all its threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _handler(port: int, limit: int) -> DynamicRendezvousHandler:
    conf = dict(pair.split("=") for pair in TUNED.conf)
    parameters = RendezvousParameters(
        "c10d",
        f"127.0.0.1:{port}",
        "rendezvous",
        limit - 1,
        limit,
        local_addr="127.0.0.1",
        is_host=False,
        **conf,
    )
    backend, store = create_backend(parameters)
    return create_handler(store, backend, parameters)


def _serve(port: int) -> None:
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    signal.pause()
    del store


def _forked(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        run()
    finally:
        os._exit(1)


if __name__ == "__main__":
    os.environ.update(TUNED.environ)
    print(json.dumps(measure(int(sys.argv[1]), float(sys.argv[2]))))
