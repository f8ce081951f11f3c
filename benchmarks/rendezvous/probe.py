"""One real node among the light ones: the machine, the session and the link's deadlines, with simulated workers.

``python -m benchmarks.rendezvous.probe PORT NODES`` prints a JSON line for each change of the generation, and at the
end of standard input the node's longest round and its reconnections. At each line there one of its workers fails, as
where a collective breaks.
"""

from __future__ import annotations

import collections
import json
import select
import signal
import sys
import time
from collections.abc import Iterable

from benchmarks.rendezvous.light import JOB, WORKERS, uuid
from elastic_infra.launcher.protocol import actions, events, machine
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.state import Node, start
from elastic_infra.launcher.store import client, link, wire

IDLE_SECONDS, BUSY_SECONDS = 0.5, 0.05


class Probe:
    """The agent's loop without processes."""

    def __init__(self, port: int, nodes: int) -> None:
        limits = Limits(
            min_nodes=max(1, nodes // 2), max_nodes=nodes, initial_nodes=nodes, startup_wait=600.0, planned_gap=0.0,
            startup_patience=0.0, max_restarts=1000, node_faults=1000,
        )  # fmt: skip
        node = Node(uuid(0), "elastic-job-worker-0", WORKERS, 0, "10.0.0.1", 1_700_000_000_000)
        self.state = start(node, limits, time.monotonic())
        self.queue: collections.deque[events.Event] = collections.deque()
        self.seen: tuple[int, str] | None = None
        self.members: frozenset[str] = frozenset()
        self.longest_round = 0.0
        self.reconnects = -1
        self._target = client.Target("127.0.0.1", port, JOB, uuid(0))
        self._connect()
        self.queue.append(events.Ready())

    def run(self) -> None:
        """Take part until standard input ends."""
        while True:
            wait = min(self.session.wait(), BUSY_SECONDS if self._is_busy() else IDLE_SECONDS)
            readable, _, _ = select.select([self.session.socket, sys.stdin], [], [], wait)
            if sys.stdin in readable:
                if not sys.stdin.readline():
                    return
                self._fail()
            began = time.monotonic()
            try:
                if readable:
                    self._take(self.session.receive())
                self.session.beat()
            except client.LostError as lost:
                age = time.monotonic() - self.session.acknowledged_at
                fresh = lost.by_peer and age < wire.SILENCE_SECONDS - link.FRESH_MARGIN
                self.queue.append(events.StoreLost(fresh))
                self._decide()
                self._connect()
            self.queue.append(events.Tick())
            self._decide()
            self.longest_round = max(self.longest_round, time.monotonic() - began)

    def _fail(self) -> None:
        if self.state.workers is not None:
            number, _ = self.state.workers.identity
            self.queue.append(events.WorkerExited(number, 0, -signal.SIGABRT))

    def _connect(self) -> None:
        self.reconnects += 1
        while True:
            try:
                self.session, first = client.connect(self._target, time.monotonic)
            except OSError:
                time.sleep(0.2)
                continue
            self._take(first)
            return

    def _take(self, notifications: Iterable[events.Event | client.Acknowledged]) -> None:
        self.queue.extend(each for each in notifications if not isinstance(each, client.Acknowledged))

    def _is_busy(self) -> bool:
        generation = self.state.generation
        return generation is None or generation.phase != "running" or not self.state.active

    def _decide(self) -> None:
        while self.queue:
            before, event = machine.next_event(self.state, self.queue, time.monotonic())
            self.state, orders = machine.step(before, event, time.monotonic())
            for order in orders:
                self._carry_out(order)
            self._tell()

    def _carry_out(self, order: actions.Action) -> None:
        if isinstance(order, (actions.CompareAndSet, actions.Publish, actions.PublishMaster)):
            self.session.carry_out(order)
        elif isinstance(order, actions.ChoosePort):
            self.queue.append(events.PortChosen(order.generation, 20_000))
        elif isinstance(order, actions.StartWorkers):
            self.queue.append(events.StepsSeen(order.generation, None, None, stepped_at=time.monotonic()))
        elif isinstance(order, actions.StopWorkers):
            self.queue.append(events.WorkersGone(order.generation))

    def _tell(self) -> None:
        generation = self.state.generation
        seen = (generation.number, generation.phase) if generation else None
        if seen != self.seen and generation is not None:
            self.seen = seen
            line = {"number": generation.number, "phase": generation.phase, "nodes": len(generation.members)}
            before, self.members = self.members, frozenset(member.uuid for member in generation.members)
            left_out = sorted(before - self.members)
            print(json.dumps({**line, "at": time.monotonic(), "left_out": left_out}), flush=True)


def main() -> None:
    """Take part until standard input ends, then print the longest round and the reconnections."""
    probe = Probe(int(sys.argv[1]), int(sys.argv[2]))
    probe.run()
    print(json.dumps({"longest_round": probe.longest_round, "reconnects": probe.reconnects}), flush=True)


if __name__ == "__main__":
    main()
