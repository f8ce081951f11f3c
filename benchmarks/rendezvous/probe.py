"""Real nodes: the machine, the session and the link's deadlines, with simulated workers.

``python -m benchmarks.rendezvous.probe PORT NODES`` is one real node among the light ones. It prints a JSON line for
each change of the generation, at each line ``COUNT`` on standard input its traffic so far, and at the end of that input
its longest round and its reconnections. At each line ``FAIL`` there one of its workers fails, as where a collective
breaks.
"""

from __future__ import annotations

import collections
import json
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from typing_extensions import override

from benchmarks.rendezvous.light import JOB, WORKERS, uuid
from elastic_infra.launcher.protocol import actions, events, machine
from elastic_infra.launcher.protocol.limits import Limits
from elastic_infra.launcher.protocol.state import Node, start
from elastic_infra.launcher.store import client, link, wire

IDLE_SECONDS, BUSY_SECONDS = 0.5, 0.05
PATIENCE_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.5
"""After a change, until each node has heard what the others say of it."""
COUNT: Final = "count"
FAIL: Final = "fail"
SENT, RECEIVED = "sent", "received"
"""All messages without the node's own beats; those that were sent are counted by their operation too."""
ASKING: Final = "compare_and_set"
_BEAT: Final = "beat"
_OPERATION: Final = re.compile(rb'"op":"(\w+)"')
Traffic = collections.Counter[str]
"""Messages of each kind, which are lines, and by ``bytes_of`` their bytes."""


def bytes_of(kind: str) -> str:
    """The name under which the bytes of messages of this kind are counted."""
    return f"bytes of {kind}"


class Counted(socket.socket):
    """A connection that counts what goes over it."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic

    @override
    def sendall(self, data: Any, flags: int = 0, /) -> None:
        found = _OPERATION.search(data)
        operation = found[1].decode() if found else ""
        for kind in (operation, SENT) if operation != _BEAT else (operation,):
            self._count(kind, 1, len(data))
        super().sendall(data, flags)

    @override
    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(size, flags)
        self._count(RECEIVED, data.count(b"\n"), len(data))
        return data

    def _count(self, kind: str, messages: int, size: int) -> None:
        self._traffic[kind] += messages
        self._traffic[bytes_of(kind)] += size


class Probe:
    """The agent's loop without processes.

    Args:
        port: the store's.
        nodes: of the whole job.
        index: of this node among them.
        tell: takes each change of the generation.
    """

    def __init__(self, port: int, nodes: int, index: int, tell: Callable[[dict[str, object]], None]) -> None:
        limits = Limits(
            min_nodes=max(1, nodes // 2), max_nodes=nodes, initial_nodes=nodes, startup_wait=600.0, planned_gap=0.0,
            startup_patience=0.0, max_restarts=1000, node_faults=1000,
        )  # fmt: skip
        name, joined = f"elastic-job-worker-{index}", 1_700_000_000_000 + index
        self.state = start(Node(uuid(index), name, WORKERS, index, "10.0.0.1", joined), limits, time.monotonic())
        self.queue: collections.deque[events.Event] = collections.deque()
        self.seen: tuple[int, str] | None = None
        self.members: frozenset[str] = frozenset()
        self.traffic: Traffic = collections.Counter()
        self.longest_round = 0.0
        self.reconnects = -1
        self._target = client.Target("127.0.0.1", port, JOB, uuid(index))
        self._tell_of = tell
        self._connect()
        self.queue.append(events.Ready())

    def run(self) -> None:
        """Take part until standard input ends."""
        while True:
            readable, _, _ = select.select([self.session.socket, sys.stdin], [], [], self.wait())
            if sys.stdin in readable:
                order = sys.stdin.readline()
                if not order:
                    return
                self._obey(order.strip())
            self.serve(is_readable=self.session.socket in readable)

    def wait(self) -> float:
        """Seconds until this node has to be served, where nothing comes."""
        return min(self.session.wait(), BUSY_SECONDS if self._is_busy() else IDLE_SECONDS)

    def serve(self, *, is_readable: bool) -> None:
        """One round of the loop."""
        began = time.monotonic()
        try:
            if is_readable:
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

    def has_entered(self, nodes: int) -> bool:
        """Whether it has said that it takes part in a running generation of so many nodes."""
        generation, said = self.state.generation, self.state.published
        if generation is None or said is None or generation.phase != "running" or len(generation.members) != nodes:
            return False
        return said.state == "member" and said.identity == generation.identity

    def _obey(self, order: str) -> None:
        if order == COUNT:
            self._tell_of({"traffic": self.traffic})
        elif order == FAIL and self.state.workers is not None:
            number, _ = self.state.workers.identity
            self.queue.append(events.WorkerExited(number, 0, -signal.SIGABRT))

    def _connect(self) -> None:
        self.reconnects += 1
        while True:
            try:
                self.session, first = self._introduced()
            except OSError:
                time.sleep(0.2)
                continue
            self._take(first)
            return

    def _introduced(self) -> tuple[client.Session, list[events.Event | client.Acknowledged]]:
        """What ``client.connect`` gives, with every byte counted."""
        end = Counted(self.traffic)
        end.settimeout(client.CONNECT_SECONDS)
        try:
            end.connect((self._target.host, self._target.port))
            return client._introduce(end, self._target, time.monotonic)  # noqa: SLF001
        except OSError:
            end.close()
            raise

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
            self._tell_of({**line, "at": time.monotonic(), "left_out": left_out})


class Probes:
    """Many real nodes in one thread, which light ones are held against."""

    def __init__(self, port: int, nodes: int) -> None:
        self.nodes: dict[int, Probe] = {}
        self._port, self._size = port, nodes
        self._due: dict[int, float] = {}
        """When each node is to be served, by index."""

    def add(self, index: int) -> None:
        """Connect one node, and let all that are there hear of it."""
        self.nodes[index] = Probe(self._port, self._size, index, lambda _: None)
        self._due[index] = 0.0
        self._serve_once(0.0)

    def lose(self, index: int) -> None:
        """The supervisor of a node says farewell, as after a crash of its agent."""
        with self.nodes.pop(index).session.socket as end:
            end.sendall(wire.FAREWELL)

    def settle(self, nodes: int) -> None:
        """Serve until all nodes have entered one generation of so many, and have heard what the others say of it.

        Raises:
            TimeoutError: they have not within ``PATIENCE_SECONDS``.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while not all(node.has_entered(nodes) for node in self.nodes.values()):
            if time.monotonic() > until:
                message = f"no generation of {nodes} nodes within {PATIENCE_SECONDS:g} s"
                raise TimeoutError(message)
            self._serve_once(BUSY_SECONDS)
        settled = time.monotonic() + SETTLE_SECONDS
        while (left := settled - time.monotonic()) > 0:
            self._serve_once(left)

    def close(self) -> None:
        """Close the connections of all nodes."""
        for node in self.nodes.values():
            node.session.socket.close()

    def _serve_once(self, seconds: float) -> None:
        wait = min([seconds, *(self._due[index] - time.monotonic() for index in self.nodes)])
        ends = [node.session.socket for node in self.nodes.values()]
        readable, _, _ = select.select(ends, [], [], max(0.0, wait))
        for index, node in self.nodes.items():
            if node.session.socket in readable or time.monotonic() >= self._due[index]:
                node.serve(is_readable=node.session.socket in readable)
                self._due[index] = time.monotonic() + node.wait()


def main() -> None:
    """Take part until standard input ends, then print the longest round and the reconnections."""
    probe = Probe(int(sys.argv[1]), int(sys.argv[2]), 0, lambda line: print(json.dumps(line), flush=True))
    probe.run()
    print(json.dumps({"longest_round": probe.longest_round, "reconnects": probe.reconnects}), flush=True)


if __name__ == "__main__":
    main()
