"""How the rendezvous grows with the number of nodes: formed, a newcomer admitted, a node lost, and standing idle.

    python -m benchmarks.rendezvous [--nodes N ...] [--runs N] [--control N] [--only ARM] [--out FILE] [--add]

A real store process, one real node in a separate process, and all others as light nodes, which send and await the
messages of a real node. Every deadline of the launcher holds. The same with torch's own rendezvous, in turn, with up to
``--control`` nodes. Run it on a machine that does nothing else; ``--add`` keeps the runs of an earlier one. How often
torch's forms with 32 nodes, and in which time:

    python -m benchmarks.rendezvous --only c10d --nodes 32 --runs 5 --add
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.common import results
from benchmarks.rendezvous import report
from benchmarks.rendezvous.light import Lights
from benchmarks.rendezvous.limits import Group
from benchmarks.rendezvous.probe import ASKING, COUNT, FAIL, RECEIVED, SENT, SETTLE_SECONDS, Traffic, bytes_of
from benchmarks.rendezvous.report import (
    AGENT_MEMORY,
    ASKED,
    BEATS,
    C10D,
    IDLE,
    IDLE_AGENT,
    IDLE_BYTES,
    LOST,
    MESSAGES,
    OURS,
    PATIENCE,
    PAUSE,
    REAL,
    RECONNECTS,
    SILENT,
    THROTTLED,
    TOLD,
    WORK,
)
from tests.ports import free_port

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
NODES: Final = (8, 32, 64, 256, 1024, 4096)
RUNS: Final = 3
CONTROL: Final = 8
"""The most nodes of torch's rendezvous: each is a process, and more of them share two processors badly."""
Figures = dict[str, float]
IDLE_SECONDS: Final = 5.0
COPIED: Final = 256 << 20
"""Bytes with which the cost of a byte is measured."""
WAVES: Final = 64
"""The nodes of a larger job come so many at a time that it is as many waves: pods start side by side, and what a job of
any size costs is then told in as many messages."""
PROBE_SECONDS: Final = 1.0
"""Until the real node has connected."""


class Run:
    """One size: the store, within its group of limits where there is one, the probe and the light nodes."""

    def __init__(
        self, store: subprocess.Popen[bytes], probe: subprocess.Popen[str], port: int, group: Group | None = None
    ) -> None:
        self.store, self.probe, self.port, self.group = store, probe, port, group
        self.lights = Lights(port)
        self.figures: dict[str, float] = {}
        self.begin()
        self._seen: list[Mapping[str, Any]] = []
        self._told = b""
        self._traffic: Traffic = Traffic()
        self._is_counted = False

    def wait_for(self, nodes: int, after: int = 0) -> Mapping[str, Any]:
        """The generation of so many nodes that comes after this number, once every light node has entered it.

        Raises:
            TimeoutError: it never came.
        """
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.lights.serve(0.02)
            self._hear()
            for line in self._seen:
                fits = line["phase"] == "running" and line["nodes"] == nodes and line["number"] > after
                if fits and len(self.lights.members(line["number"])) >= len(self.lights.nodes):
                    return line
        message = f"no generation of {nodes} nodes within {PATIENCE:g} s: {self._seen[-3:]}"
        raise TimeoutError(message)

    def restart_store(self) -> None:
        """The store is gone with all it knew, and another begins; all nodes connect to it."""
        end(self.store)
        self.store = serve(self.port)
        self.lights.reconnect()

    def break_collective(self) -> None:
        """A worker of the real node fails, since it waits for one of a node that is gone."""
        self._order(FAIL)

    def begin(self) -> None:
        """A change begins: the processor time of each party and the bytes count from here."""
        self._spent, self._received = self._work(), self.lights.received
        self._throttled = self.group.throttled_seconds() if self.group else 0.0

    def tell(self, change: str, seconds: float) -> None:
        """Take a change down that took so long, with the processor time of each party and what the nodes were told."""
        spent = zip(WORK, self._work(), self._spent, strict=True)
        self.figures |= {change: seconds, **{f"{work}, {change}": now - before for work, now, before in spent}}
        self.figures[f"{TOLD}, {change}"] = (self.lights.received - self._received) / 1e6
        if self.group:
            self.figures[f"{THROTTLED}, {change}"] = self.group.throttled_seconds() - self._throttled
        self.lights.serve(SETTLE_SECONDS)
        before, after = self._traffic, self.count()
        told = real_traffic(after - before)
        self.figures |= {f"{name} by the real node, {change}": count for name, count in told.items()}
        self.figures[ASKED] = float(after[ASKING])

    def count(self) -> Traffic:
        """What the real node has sent and received so far.

        Raises:
            TimeoutError: it does not answer.
        """
        self._is_counted = False
        self._order(COUNT)
        until = time.monotonic() + PATIENCE
        while not self._is_counted:
            if time.monotonic() > until:
                message = f"the real node did not count its messages within {PATIENCE:g} s"
                raise TimeoutError(message)
            self.lights.serve(0.02)
            self._hear()
        return self._traffic

    def _order(self, order: str) -> None:
        if self.probe.stdin:
            self.probe.stdin.write(f"{order}\n")
            self.probe.stdin.flush()

    def _work(self) -> tuple[float, float, float]:
        return cpu_seconds(self.store.pid), cpu_seconds(self.probe.pid), time.process_time()

    def entered(self, generation: Mapping[str, Any]) -> float:
        """When the last node, the probe included, had entered a generation."""
        return max([*self.lights.members(generation["number"]), float(generation["at"])])

    def _hear(self) -> None:
        pipe = self.probe.stdout.fileno() if self.probe.stdout else -1
        while select.select([pipe], [], [], 0)[0] and (data := os.read(pipe, 1 << 16)):
            self._told += data
        *lines, self._told = self._told.split(b"\n")
        for line in map(json.loads, lines):
            if "traffic" in line:
                self._traffic, self._is_counted = Traffic(line["traffic"]), True
                continue
            self._seen.append(line)
            self.lights.leave_out(line["left_out"], line["number"])


def real_traffic(counted: Traffic) -> Figures:
    """What a real node sent and received."""
    figures = [(counted[kind], counted[bytes_of(kind)] / 1e3) for kind in (SENT, RECEIVED)]
    return dict(zip(REAL, map(float, itertools.chain(*figures)), strict=True))


def measure(
    nodes: int, idle_seconds: float = IDLE_SECONDS, *, silent: bool = True, group: Group | None = None
) -> Figures:
    """Every figure of one size, in seconds unless the name says otherwise.

    Args:
        nodes: light ones; the real node comes on top of them.
        idle_seconds: for which the job stands idle.
        silent: whether a node falls silent in the end, which takes the store's patience.
        group: limits of the store's process.
    """
    with running(nodes + 1, group) as run:
        formed = form(run, nodes)
        _stand_idle(run, idle_seconds)
        smaller = change(run, "lost node", lambda: run.lights.lose(nodes), nodes, formed)
        run.lights.serve(1.0)
        larger = change(run, "newcomer", lambda: run.lights.add(nodes + 1), nodes + 1, smaller)
        left = run.lights.nodes.values()
        run.figures[MESSAGES] = sum(each.call for each in left) / len(left)
        run.figures[BEATS] = sum(each.beats for each in left) / len(left)
        run.figures["kB sent by a node"] = sum(each.sent for each in left) / len(left) / 1e3
        run.figures["kB sent to a node and node"] = sum(each.received for each in left) / len(left) / nodes / 1e3
        run.figures["ns to copy a byte"] = 1e9 * seconds_to_copy(COPIED) / COPIED
        run.figures[LOST] = float(run.lights.lost_connections)
        run.figures["store memory, MB"] = _megabytes(run.store.pid, "VmRSS")
        if silent:
            change(run, SILENT, lambda: run.lights.freeze(1), nodes, larger)
        run.figures[AGENT_MEMORY] = _megabytes(run.probe.pid, "VmHWM")
        told, _ = run.probe.communicate(timeout=60)
    last = json.loads(told.splitlines()[-1])
    return {**run.figures, PAUSE: last["longest_round"], RECONNECTS: last["reconnects"]}


def control(nodes: int, idle_seconds: float = IDLE_SECONDS) -> dict[str, float | str]:
    """The same changes under torch's rendezvous; of those that did not come, why."""
    command = [sys.executable, "-m", "benchmarks.rendezvous.c10d", str(nodes), str(idle_seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float | str] = json.loads(done.stdout)
    return figures


def form(run: Run, nodes: int) -> Mapping[str, Any]:
    """The first generation, of so many light nodes and the real one; they come in ``WAVES``."""
    time.sleep(PROBE_SECONDS)
    for index in range(1, nodes):
        run.lights.add(index)
        if index % max(1, nodes // WAVES) == 0:
            run.lights.serve(0.0)
    last = time.monotonic()
    run.begin()
    run.lights.add(nodes)
    formed = run.wait_for(nodes + 1)
    run.tell("form", run.entered(formed) - last)
    return formed


def _stand_idle(run: Run, seconds: float) -> None:
    run.lights.serve(min(seconds, 2.0))
    nodes, begin, pids = len(run.lights.nodes), time.monotonic(), (run.store.pid, run.probe.pid)
    before, sent, received = [cpu_seconds(pid) for pid in pids], run.lights.sent, run.lights.received
    run.lights.serve(seconds)
    spent = time.monotonic() - begin
    store, agent = (cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True))
    run.figures |= {IDLE: 100 * store / spent, IDLE_AGENT: 100 * agent / spent}
    told = (run.lights.sent - sent, run.lights.received - received)
    run.figures |= {name: count / nodes / spent for name, count in zip(IDLE_BYTES, told, strict=True)}


def change(run: Run, name: str, strike: Callable[[], None], nodes: int, before: Mapping[str, Any]) -> Mapping[str, Any]:
    """The generation of so many nodes, the real one included, that follows another after something happened."""
    begin = time.monotonic()
    run.begin()
    strike()
    after = run.wait_for(nodes, before["number"])
    run.tell(name, run.entered(after) - begin)
    return after


@contextmanager
def running(nodes: int, group: Group | None = None) -> Iterator[Run]:
    """A store and a real node, for a job of so many nodes with it."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.rendezvous.probe", str(port), str(nodes)]
    store = serve(port, group)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
        run = Run(store, probe, port, group)
        try:
            yield run
        finally:
            run.lights.close()
            probe.kill()
            end(run.store)


def serve(port: int, group: Group | None = None) -> subprocess.Popen[bytes]:
    """A store that listens there, in this group."""
    command = [sys.executable, "-m", "elastic_infra.launcher.store", "--host", "127.0.0.1", "--port", str(port)]
    store = subprocess.Popen(group.command(command) if group else command, stdout=subprocess.PIPE)
    _ = store.stdout.readline() if store.stdout else b""  # it listens
    return store


def end(store: subprocess.Popen[bytes]) -> None:
    """A store is gone at once."""
    with store:
        store.kill()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with one thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def seconds_to_copy(size: int) -> float:
    """Processor time for sending and receiving so many bytes on this machine, which no design saves."""
    piece = bytes(1 << 16)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sender:
        receiver, _ = listener.accept()
        with receiver:
            before = time.process_time()
            for _ in range(size // len(piece)):
                sender.sendall(piece)
                left = len(piece)
                while left:
                    left -= len(receiver.recv(left))
            return time.process_time() - before


def _megabytes(pid: int, name: str) -> float:
    """A process's memory by this line of its status."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


def main(arguments: list[str]) -> int:
    """Measure all sizes in turn, and write the figures and their page after each."""
    options = _parse(arguments)
    command = results.command("benchmarks.rendezvous", arguments)
    found: dict[str, Any] = {"machine": results.machine(command, "torch"), "runs": {}}
    if options.add:
        kept = results.load(options.out)
        found = {**kept, "machine": list(dict.fromkeys([*kept["machine"], *found["machine"]]))}
    for _ in range(options.runs):
        most = max(options.nodes) if options.only == C10D else options.control
        for nodes in options.nodes:
            measured: dict[str, list[Mapping[str, float | str]]] = found["runs"].setdefault(str(nodes), {})
            if options.only != C10D:
                measured.setdefault(OURS, []).append(measure(nodes))
            if nodes <= most and options.only != OURS:
                measured.setdefault(C10D, []).append(control(nodes))
                most = most if "newcomer" in measured[C10D][-1] else 0
            print(nodes, json.dumps({arm: runs[-1] for arm, runs in measured.items()}), flush=True)
            results.save(options.out, found, report.document)
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rendezvous")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="sizes, the real node left out")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each size")
    parser.add_argument("--control", type=int, default=CONTROL, metavar="N", help="most nodes of torch's rendezvous")
    parser.add_argument("--only", choices=(OURS, C10D), help="one of the two; ratios are of medians then")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON of the figures, with the page beside it")
    parser.add_argument("--add", action="store_true", help="keep the runs that are there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
