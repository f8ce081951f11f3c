"""How the rendezvous grows with the number of nodes: formed, a newcomer admitted, a node lost, and standing idle.

    python -m benchmarks.rendezvous [--nodes N ...] [--runs N] [--out FILE]

A real store process, one real node in a separate process, and all others as light nodes, which send and await the
messages of a real node. Every deadline of the launcher holds. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks.rendezvous.light import Lights
from tests.ports import free_port

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
NODES: Final = (8, 64, 256, 1024, 4096)
RUNS: Final = 3
CHANGES: Final = ("form", "lost node", "newcomer")
WORK: Final = ("store CPU", "agent CPU", "simulation CPU")
"""Whose processor time each change is told of: the store's, the real agent's, and that of all light nodes, which a job
spends on as many machines."""
TOLD: Final = "MB told"
"""What all nodes receive."""
MESSAGES_OF_A_CHANGE: Final = 2
"""The records of a node's stop and of its place in the next generation."""
SLOPES: Final = (
    *CHANGES,
    *(f"{work}, {change}" for change in CHANGES for work in (*WORK[:2], TOLD)),
    "kB sent by a node",
)
"""Figures whose growth is told."""
PATIENCE: Final = 120.0
IDLE_SECONDS: Final = 5.0
COPIED: Final = 256 << 20
"""Bytes with which the cost of a byte is measured."""
PROBE_SECONDS: Final = 1.0
"""Until the real node has connected."""
LEAST_SECONDS: Final = 1e-4
"""Of a figure in a slope: below it nothing is measured."""
WORST: Final = ("lost connections", "longest_round", "reconnects")
"""Figures of which the worst run counts."""


class Run:
    """One size: the store, the probe and the light nodes."""

    def __init__(self, store: subprocess.Popen[bytes], probe: subprocess.Popen[str], port: int) -> None:
        self.store, self.probe = store, probe
        self.lights = Lights(port)
        self.figures: dict[str, float] = {}
        self.begin()
        self._seen: list[Mapping[str, Any]] = []
        self._told = b""

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

    def begin(self) -> None:
        """A change begins: the processor time of each party and the bytes count from here."""
        self._spent, self._received = self._work(), self.lights.received

    def tell(self, change: str, seconds: float) -> None:
        """Take a change down that took so long, with the processor time of each party and what the nodes were told."""
        spent = zip(WORK, self._work(), self._spent, strict=True)
        self.figures |= {change: seconds, **{f"{work}, {change}": now - before for work, now, before in spent}}
        self.figures[f"{TOLD}, {change}"] = (self.lights.received - self._received) / 1e6

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
        self._seen += map(json.loads, lines)


def measure(nodes: int, idle_seconds: float = IDLE_SECONDS) -> dict[str, float]:
    """Every figure of one size, in seconds unless the name says otherwise; the real node comes on top of ``nodes``."""
    with running(nodes + 1) as run:
        formed = form(run, nodes)
        _stand_idle(run, idle_seconds)
        smaller = _lose(run, nodes, formed["number"])
        run.lights.serve(1.0)
        begin = time.monotonic()
        run.begin()
        run.lights.add(nodes + 1)
        larger = run.wait_for(nodes + 1, smaller["number"])
        run.tell("newcomer", run.entered(larger) - begin)
        left = run.lights.nodes.values()
        run.figures["messages sent by a node"] = sum(each.call for each in left) / len(left)
        run.figures["kB sent by a node"] = sum(each.sent for each in left) / len(left) / 1e3
        run.figures["kB sent to a node and node"] = sum(each.received for each in left) / len(left) / nodes / 1e3
        run.figures["ns to copy a byte"] = 1e9 * seconds_to_copy(COPIED) / COPIED
        run.figures["lost connections"] = float(run.lights.lost_connections)
        run.figures["store memory, MB"] = _megabytes(run.store.pid)
        told, _ = run.probe.communicate(timeout=60)
    return {**run.figures, **json.loads(told.splitlines()[-1])}


def form(run: Run, nodes: int) -> Mapping[str, Any]:
    """The first generation, of so many light nodes and the real one."""
    time.sleep(PROBE_SECONDS)
    for index in range(1, nodes):
        run.lights.add(index)
        run.lights.serve(0.0)
    last = time.monotonic()
    run.begin()
    run.lights.add(nodes)
    formed = run.wait_for(nodes + 1)
    run.tell("form", run.entered(formed) - last)
    return formed


def _stand_idle(run: Run, seconds: float) -> None:
    run.lights.serve(min(seconds, 2.0))
    begin, pids = time.monotonic(), (run.store.pid, run.probe.pid)
    before = [cpu_seconds(pid) for pid in pids]
    run.lights.serve(seconds)
    spent = time.monotonic() - begin
    store, agent = (cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True))
    run.figures |= {"idle store, % of a core": 100 * store / spent, "idle agent, % of a core": 100 * agent / spent}


def _lose(run: Run, nodes: int, number: int) -> Mapping[str, Any]:
    begin = time.monotonic()
    run.begin()
    run.lights.lose(nodes)
    smaller = run.wait_for(nodes, number)
    run.tell("lost node", run.entered(smaller) - begin)
    return smaller


@contextmanager
def running(nodes: int) -> Iterator[Run]:
    """A store and a real node, for a job of so many nodes with it."""
    port = free_port()
    serve = [sys.executable, "-m", "elastic_infra.launcher.store", "--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, "-m", "benchmarks.rendezvous.probe", str(port), str(nodes)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE) as store:
        _ = store.stdout.readline() if store.stdout else b""  # it listens
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
            run = Run(store, probe, port)
            try:
                yield run
            finally:
                run.lights.close()
                probe.kill()
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


def _megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def slope(results: Mapping[int, Mapping[str, float]], name: str) -> float:
    """How a figure grows over the three largest sizes: 1 is with the nodes, 2 with their square (least squares)."""
    points = [(math.log(nodes), math.log(max(figures[name], LEAST_SECONDS))) for nodes, figures in results.items()][-3:]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def document(results: Mapping[int, Mapping[str, float]], runs: int) -> str:
    """The table as Markdown."""
    names = list(next(iter(results.values())))
    head = f"| nodes | {' | '.join(str(nodes) for nodes in results)} |\n|{' --- |' * (len(results) + 1)}\n"
    rows = (f"| {name} | {' | '.join(f'{each[name]:.3g}' for each in results.values())} |" for name in names)
    facts = f"Python {platform.python_version()}, {os.cpu_count()} CPUs, measured {date.today()}"  # noqa: DTZ011  for readers
    about = (
        f"Seconds unless a row says otherwise, medians of {runs} runs of each size, but the worst run's longest round, "
        "lost connections and reconnects; every node, the store and the load share the processors. `form` counts from "
        "the last node's hello to the moment at which every node has entered the generation; `lost node` from a "
        "farewell, `newcomer` from a hello, to the same. The processor time of each change is that of the store, of "
        "the one real agent, and of the program that plays all other nodes: a job has these on as many machines, and "
        "waits for the store and one agent. `longest_round` is the real agent's longest time between two beats: its "
        "watchdog allows 10 s."
    )
    shares = (
        f"After a loss and for a newcomer each node sends {MESSAGES_OF_A_CHANGE} small messages, which the store tells "
        "to all in a few large ones: one message a node is enough, and `lost node` and `newcomer` are to grow with the "
        "nodes. `form` needs more: each of N nodes says hello, gets all records, and hears of each other node that "
        f"comes, 20 to 50 bytes packed, so `{TOLD}` grows with the square. To copy these bytes, the least that "
        f"a change can take, took {_copying(results)}; the rest is the work on each message."
    )
    grows = ", ".join(f"{name} {slope(results, name):.2f}" for name in SLOPES) if len(results) > 1 else "none"
    return (
        f"# The rendezvous at scale\n\n{facts} by `python -m benchmarks.rendezvous`.\n\n{head}"
        + "\n".join(rows)
        + f"\n\n{about}\n\n{shares}\n\n"
        + f"Log-log slopes over the largest sizes, where 1 is growth with the nodes: {grows}.\n"
    )


def _copying(results: Mapping[int, Mapping[str, float]]) -> str:
    """What copying the bytes of each change takes, with the most nodes."""
    nodes = max(results)
    each = (
        f"{change} {results[nodes][f'{TOLD}, {change}'] * results[nodes]['ns to copy a byte'] / 1e3:.2g} s"
        for change in CHANGES
    )
    return f"{', '.join(each)} with {nodes} nodes"


def main(arguments: list[str]) -> int:
    """Measure all sizes and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rendezvous")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="sizes, the real node left out")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each size, of which the medians are told")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes")
    options = parser.parse_args(arguments)
    results: dict[int, Mapping[str, float]] = {}
    for nodes in options.nodes:
        measured = [measure(nodes) for _ in range(options.runs)]
        results[nodes] = {
            name: (max if name in WORST else statistics.median)(each[name] for each in measured) for name in measured[0]
        }
        print(nodes, json.dumps({name: round(value, 3) for name, value in results[nodes].items()}), flush=True)
        options.out.write_text(document(results, options.runs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
