"""The requests to the fork server, explored exhaustively: the production supervisor in every order of events.

Supervisor and client are the real ones, with real sockets and pipes between them and a fork server played here; only
processes and the clock are simulated. A world is the list of events that led to it, from which it is rebuilt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elastic_infra.launcher import ipc, processes
from elastic_infra.launcher.command_line.plan import Entrypoint
from elastic_infra.launcher.run_dir import RunDir
from elastic_infra.launcher.supervisor import fork_requests, fork_server_client, supervisor
from elastic_infra.launcher.supervisor.fork_requests import ForkRequests
from elastic_infra.launcher.supervisor.ownership import Owner

FORK_SERVER = 2
LOAD = fork_server_client.Load({}, Entrypoint("script", "train.py"), (), (), comes_first=False)
LAST_GENERATION = 2
"""The script fails in the generations before, or its second worker is killed."""
LATE = 1
"""The local rank that is killed."""


class BrokenError(AssertionError):
    """A law does not hold."""


def require(law: str, *facts: object, holds: bool) -> None:
    """Raise where a law does not hold."""
    if not holds:
        raise BrokenError(" ".join(map(str, (law, *facts))))


@dataclasses.dataclass
class Worker:
    """A worker without a process: forked, cold, or ended."""

    generation: int
    local_rank: int
    go: int | None
    """The pipe on which it waits, or None where it was started cold."""
    state: str = "waits"

    def look(self) -> None:
        """Follow the order on the pipe."""
        if self.state == "waits" and self.go is not None:
            with contextlib.suppress(BlockingIOError):
                self.state = "runs" if os.read(self.go, 1) else "zombie 1"


class World:
    """A supervisor, a fork server that is ready, and their workers."""

    def __init__(self, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = workers
        self.now = 100.0
        self.pids = itertools.count(10)
        self.workers: dict[int, Worker] = {}
        self.sent: list[ipc.Message] = []
        self.generation, self.phase = 0, "gone"
        self.is_frozen = False
        self.unread = 0
        """Answers that wait in the socket."""
        self.failed: set[int] = set()
        self.over: set[int] = set()
        self.killed: set[tuple[int, int]] = set()
        """Generation and local rank."""
        self.client = fork_server_client.ForkServer(RunDir("", "", "", 0), LOAD, now=0.0)
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.set_blocking(self.theirs.fileno(), False)
        self.client._channel, self.client.pid, self.client.ready = ours, FORK_SERVER, True
        self.client._was_started, self.client._more_at = True, math.inf
        self.selector = selectors.DefaultSelector()
        self.selector.register(ours, selectors.EVENT_READ)
        children: Any = self
        no_signals: Any = None
        self.supervisor = supervisor.Supervisor(
            children, no_signals, self.client, owner=Owner(os.getpid(), b""), grace_seconds=0.0
        )
        monkeypatch.setattr(processes, "environ", lambda _pid: b"")
        monkeypatch.setattr(processes, "read", lambda _pid: None)
        monkeypatch.setattr(processes, "send", self._kill)
        monkeypatch.setattr(processes, "start", self._start)
        monkeypatch.setattr(processes, "scan", self._scan)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr(os, "killpg", self._kill)

    def close(self) -> None:
        """Close both ends of the connection and the pipes of all workers."""
        self.client.close()
        self.theirs.close()
        self.selector.close()
        for worker in self.workers.values():
            if worker.go is not None:
                os.close(worker.go)

    # What the supervisor sees of its children and of the kernel.

    def send(self, message: ipc.Message) -> None:
        self.sent.append(message)

    def known(self) -> tuple[int, ...]:
        return ()

    def reap(self) -> Iterator[tuple[int, int]]:
        for pid, worker in self.workers.items():
            if worker.state.startswith("zombie"):
                code = int(worker.state.split()[1])
                worker.state = "reaped"
                yield pid, -code if code < 0 else code << 8

    def _kill(self, pid: int, _number: int) -> None:
        if pid == FORK_SERVER:
            self.is_frozen = True
        elif self.workers[pid].state in {"waits", "runs"}:
            self.workers[pid].state = "zombie -9"

    def _start(self, argv: tuple[str, ...], *_: Any) -> int:
        pid = next(self.pids)
        generation, rank = map(int, argv)
        self.workers[pid] = Worker(generation, rank, None, "runs")
        return pid

    def _scan(self) -> tuple[processes.Process, ...]:
        return tuple(
            processes.Process(pid, os.getpid(), pid, pid, worker.state)
            for pid, worker in self.workers.items()
            if worker.state != "reaped"
        )

    # What may happen.

    def events(self) -> dict[str, Callable[[], None]]:
        """Everything that may happen next."""
        found: dict[str, Callable[[], None]] = {"tick": self.tick}
        orders = {"gone": self.spawn, "running": self.kill, "failed": self.stop}
        if self.phase in orders and self.generation < LAST_GENERATION:
            found[orders[self.phase].__name__] = orders[self.phase]
        if not self.is_frozen:
            found["fork"] = self.fork
            found["freeze"] = lambda: setattr(self, "is_frozen", True)
        if self.unread and self.client.pid:
            found["answer"] = self.answer
        if self.client.requests.outstanding:
            found["5 s pass"] = self.wait
        for pid, worker in self.workers.items():
            if worker.state == "runs" and worker.generation < LAST_GENERATION and worker.local_rank == 0:
                found[f"fail {pid}"] = lambda pid=pid: self.fail(pid)  # type: ignore[misc]
        return found

    def do(self, name: str) -> None:
        """Have one of them happen."""
        self.events()[name]()
        for worker in self.workers.values():
            worker.look()
        for message in self.sent:
            self.judge(message)
        self.sent.clear()

    def spawn(self) -> None:
        self.generation += 1
        self.phase = "running"
        specs = (ipc.WorkerSpec(rank, (str(self.generation), str(rank)), {}) for rank in range(self.size))
        self.supervisor._on_spawn(ipc.Spawn(self.generation, tuple(specs), warm=True))

    def fork(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data, descriptors, _, _ = socket.recv_fds(self.theirs, 1 << 16, 1)
            job, pid = json.loads(data), next(self.pids)
            os.set_blocking(descriptors[0], False)
            self.workers[pid] = Worker(int(job["argv"][0]), job["local_rank"], descriptors[0])
            require("It appears after its end:", self.workers[pid], holds=self.workers[pid].generation not in self.over)
            self.unread += 1
            self.theirs.send(json.dumps({**job, "pid": pid}).encode())

    def answer(self) -> None:
        self.unread -= 1
        self.supervisor._on_warm(self.selector)

    def fail(self, pid: int) -> None:
        self.failed.add(pid)
        self.workers[pid].state = "zombie 1"

    def kill(self) -> None:
        self.phase = "killing"
        self.killed.add((self.generation, LATE))
        self.supervisor._on_kill(ipc.Kill(self.generation, (LATE,)))

    def stop(self) -> None:
        self.phase = "stopping"
        self.supervisor._on_stop(ipc.Stop(self.generation, 0.0, "SIGTERM", "a failure"))

    def wait(self) -> None:
        self.now += fork_requests.ANSWER_SECONDS
        self.tick()

    def tick(self) -> None:
        self.supervisor._reap()
        self.supervisor._keep_warm(self.now, self.selector)
        self.supervisor._stop_groups(self.now)

    # What must hold.

    def judge(self, message: ipc.Message) -> None:
        """The laws for what the agent is told."""
        if isinstance(message, ipc.WorkerStarted):
            worker = self.workers[message.pid]
            is_its = (worker.generation, worker.local_rank) == (message.spawn, message.local_rank)
            require("Told of another worker:", message, worker, holds=is_its)
            is_killed = (message.spawn, message.local_rank) in self.killed
            require("Runs though it was killed:", message, holds=not is_killed)
        elif isinstance(message, ipc.WorkerEnded) and self.phase == "running":
            require("Charged though it did not fail:", message, holds=message.pid in self.failed)
            self.phase = "failed"
        elif isinstance(message, ipc.WorkerEnded) and self.phase == "killing" and message.local_rank == LATE:
            self.phase = "failed"
        elif isinstance(message, ipc.GroupGone):
            left = [w for w in self.workers.values() if w.generation == message.spawn and w.state != "reaped"]
            require("Outlives its end:", message, left, holds=not left)
            self.phase = "gone"
            self.over.add(message.spawn)

    def is_good(self) -> bool:
        """The last generation runs on every rank, and nothing else does."""
        alive = [worker for worker in self.workers.values() if worker.state != "reaped"]
        return {(w.generation, w.local_rank, w.state) for w in alive} == {
            (LAST_GENERATION, rank, "runs") for rank in range(self.size)
        }

    def key(self) -> object:
        """Equal for worlds that behave equally."""
        requests = self.client.requests
        workers = tuple((pid, w.generation, w.local_rank, w.state) for pid, w in self.workers.items())
        pending = tuple((each.spawn, each.spec.local_rank) for each in requests.wanted.values())
        queues = len(requests.forgotten), self.unread, self.client.pid
        known = tuple(sorted(self.supervisor._groups)), tuple(sorted(self.supervisor._strays))
        return self.generation, self.phase, self.is_frozen, workers, pending, queues, known, tuple(self.killed)


def explore(workers: int) -> int:
    """Visit every world; returns their number.

    Raises:
        BrokenError: a law is broken, or a world has no way to a good one; with the events that lead there.
    """
    paths: list[tuple[str, ...]] = [()]
    index: dict[object, int] = {}
    before: list[set[int]] = [set()]
    good: list[int] = []
    queue = deque([0])
    while queue:
        here = queue.popleft()
        names = at(workers, paths[here], lambda world: tuple(world.events()))
        for name in names:
            way = (*paths[here], name)
            try:
                key, is_good = at(workers, way, lambda world: (world.key(), world.is_good()))
            except BrokenError as broken:
                message = f"{broken} after {way}"
                raise BrokenError(message) from broken
            if key not in index:
                index[key] = len(paths)
                paths.append(way)
                before.append(set())
                queue.append(index[key])
                good += [index[key]] if is_good else []
            if name != "freeze":
                before[index[key]].add(here)
    require_way_out(paths, before, good)
    return len(paths)


def require_way_out(paths: list[tuple[str, ...]], before: list[set[int]], good: list[int]) -> None:
    """Every world has a way to a good one that needs no fault."""
    escapes, queue = set(good), deque(good)
    while queue:
        new = before[queue.popleft()] - escapes
        escapes |= new
        queue.extend(new)
    for number, path in enumerate(paths):
        require("Stuck after", path, holds=number in escapes)


def at(workers: int, path: tuple[str, ...], look: Callable[[World], Any]) -> Any:
    """What is seen in the world at the end of a path."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = World(workers, monkeypatch)
        try:
            for name in path:
                world.do(name)
            return look(world)
        finally:
            world.close()


def test_every_answer_reaches_its_own_generation() -> None:
    """No worker is taken for another, nothing is charged that did not fail, nothing outlives its end or runs after it.

    Every order to kill a worker is answered by its end.
    """
    assert explore(workers=2) > 100


class ByLocalRank(ForkRequests):
    """A mutant: requests are told apart by their local rank, and a generation's end forgets them."""

    def add(self, number: int, pending: fork_requests.Pending, now: float) -> None:
        self.ranks = {**getattr(self, "ranks", {}), number: pending.spec.local_rank}
        super().add(pending.spec.local_rank, pending, now)

    def answer(self, number: int, now: float) -> fork_requests.Pending | int:
        rank = self.ranks[number]
        return super().answer(rank, now) if rank in self.wanted else -1

    def forget(self, is_meant: Callable[[fork_requests.Held], bool]) -> tuple[fork_requests.Pending, ...]:
        gone = super().forget(is_meant)
        self.forgotten.clear()
        return gone


class NotAwaited(ForkRequests):
    """A mutant: a generation is gone although answers for it are to come."""

    def concerns(self, spawn: int) -> bool:
        del spawn
        return False


class NeverLate(ForkRequests):
    """A mutant: a fork server that does not answer is waited for."""

    def add(self, number: int, pending: fork_requests.Pending, now: float) -> None:
        super().add(number, pending, now)
        self.late_at = None


@pytest.mark.parametrize(
    ("mutant", "found"),
    [(ByLocalRank, "after its end|another worker"), (NotAwaited, "after its end"), (NeverLate, "Stuck")],
)
def test_the_model_finds_what_it_is_for(
    mutant: type[ForkRequests], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of the rules a law is broken."""
    monkeypatch.setattr(fork_server_client, "ForkRequests", mutant)

    with pytest.raises(BrokenError, match=found):
        explore(workers=2)


def test_the_model_finds_a_kill_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only workers that have a process are killed, one that is being forked runs."""

    def kills_processes(of: supervisor.Supervisor, message: ipc.Kill) -> None:
        of._groups[message.spawn].kill_workers(message.local_ranks)

    monkeypatch.setattr(supervisor.Supervisor, "_on_kill", kills_processes)

    with pytest.raises(BrokenError, match="Runs though it was killed"):
        explore(workers=2)


def test_a_worker_that_waits_for_the_fork_server_to_load_is_killed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as ended without a process, and is not started once the fork server is ready; the others are."""
    world = World(2, monkeypatch)
    try:
        world.client._load_by = math.inf
        world.spawn()
        world.supervisor._on_kill(ipc.Kill(1, (LATE,)))

        assert [(each.spawn, each.spec.local_rank) for each in world.client.held] == [(1, 0)]
        assert world.sent == [ipc.WorkerEnded(1, LATE, 0, -9, world.now)]
    finally:
        world.close()
