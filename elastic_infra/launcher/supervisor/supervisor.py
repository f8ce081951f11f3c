"""The supervisor owns all other processes: it starts, reaps and ends them, whatever the agent does.

The supervisor is the launcher's first process, PID 1 in a container, standard library only and one thread, so it may
fork. It decides nothing about training or membership: the agent orders starts and stops over the channel (``ipc``).
By itself the supervisor only enforces deadlines: the grace of a stop, the dead-man timer (no worker runs longer than
``orphan_timeout`` after the store's last answer), the watchdog over the agent, and the end after a signal.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from .. import exit_codes, ipc, processes
from ..signals import Signals
from . import ownership, watchdog, worker_processes
from .children import Children
from .fork_requests import Held
from .fork_server_client import Forked, ForkServer
from .ownership import Owner
from .worker_processes import WorkerProcesses

SIGNAL_MARGIN_SECONDS: Final = 1.5
"""Time beyond the grace in which the agent may leave by itself after a signal."""

_TICK_SECONDS: Final = 1.0
_BUSY_TICK_SECONDS: Final = 0.02
"""How often the process table is read while a group is being killed."""


class Supervisor:
    """Runs one launch to its end, or to the end of its agent: a new agent has a new supervisor."""

    def __init__(
        self, children: Children, signals: Signals, warm: ForkServer, owner: Owner, *, grace_seconds: float
    ) -> None:
        self._children = children
        self._owner = owner
        self._warm = warm
        self._signals = signals
        self._grace = grace_seconds
        self._groups: dict[int, WorkerProcesses] = {}
        self._phase: ipc.AgentPhase = "starting"
        self._spawn = 0
        self._started = 0
        self._strays: dict[int, int] = {}
        """Exit code by pid of children reaped while an answer of the fork server was to come: a forked worker may die
        before the supervisor knows its pid."""
        self._beats = 0
        self._watch = watchdog.Watch()
        self._next_watch = 0.0
        self._dead_man: float | None = None
        self._orphan_timeout = 0.0
        self._end_by: float | None = None
        self._told = 0
        self.report: dict[str, object] = {}
        """The root cause that the agent reported last."""
        self.outcome: ipc.Leave | None = None
        self.agent_failure: Literal["", "dead", "stuck"] = ""
        """``dead``: the agent ended unexpectedly and with it this run; ``stuck``: the watchdog ended the agent."""
        self.is_clear = True
        """Whether no killed process is left."""

    @property
    def has_only_lost_its_agent(self) -> bool:
        """Whether only the agent failed: no process of its workers is left, and no signal has come."""
        return bool(self.agent_failure) and self.is_clear and self.caught is None

    @property
    def caught(self) -> int | None:
        """The first signal that asked the launcher to end."""
        return self._signals.caught[0] if self._signals.caught else None

    def run(self) -> ipc.Leave:
        """Serve the agent until it leaves or has to be ended; on return no worker is left."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals.fd, selectors.EVENT_READ, self._signals.drain)
            selector.register(self._children.channel, selectors.EVENT_READ, self._receive)
            self._once(time.monotonic(), selector)  # the fork server loads while the agent loads
            while self.outcome is None:
                for key, _ in selector.select(self._patience()):
                    key.data()
                self._once(time.monotonic(), selector)
            while self._groups:
                selector.select(_BUSY_TICK_SECONDS)
                self._signals.drain()
                self._clear(time.monotonic())
        self._warm.close()
        return self.outcome

    def _patience(self) -> float:
        now = time.monotonic()
        if self._children.is_store_starting or any(group.is_busy(now) for group in self._groups.values()):
            return _BUSY_TICK_SECONDS
        deadlines = [at for group in self._groups.values() for at in (group.deadline, group.suspended_until)]
        times = [at for at in (*deadlines, self._dead_man, self._end_by) if at is not None]
        return max(0.0, min([_TICK_SECONDS, *(at - now for at in times)]))

    def _once(self, now: float, selector: selectors.BaseSelector) -> None:
        self._reap()
        self._children.tell_store()
        self._keep_warm(now, selector)
        self._tell_signals(now)
        self._check_dead_man(now)
        self._stop_groups(now)
        self._check_agent(now)
        if self._end_by is not None and now >= self._end_by and self.outcome is None:
            self._end(exit_codes.of_signal(self.caught or signal.SIGTERM), "The agent did not leave after the signal.")

    # ------------------------------------------------------------- messages

    def _receive(self) -> None:
        handlers: Mapping[type, Callable[..., None]] = {
            ipc.Spawn: self._on_spawn,
            ipc.WarmUp: self._on_warm_up,
            ipc.Stop: self._on_stop,
            ipc.Kill: self._on_kill,
            ipc.DumpStacks: self._on_dump_stacks,
            ipc.HoldStore: self._on_hold_store,
            ipc.BeatAcked: self._on_beat_acked,
            ipc.Resume: self._on_resume,
            ipc.AgentBeat: self._on_agent_beat,
            ipc.HostStore: self._on_host_store,
            ipc.Note: self._on_note,
            ipc.Leave: self._on_leave,
        }
        try:
            for message in self._children.channel.receive():
                handlers[type(message)](message)
        except (EOFError, ConnectionError):
            if self.outcome is None:
                self.agent_failure = "dead"
                self._end(exit_codes.RETRY, "The agent ended unexpectedly.")

    def _on_spawn(self, message: ipc.Spawn) -> None:
        group = self._groups.setdefault(message.spawn, WorkerProcesses(message.spawn))
        if group.leaders:
            self._kill_leftovers(group)
        self._spawn, self._started = message.spawn, len(group.alive) + len(message.workers)
        for spec in message.workers:
            if message.warm:
                self._warm.want(time.monotonic())
            if not (message.warm and self._warm.request(message.spawn, spec)):
                self._start_cold(message.spawn, spec)

    def _start_cold(self, spawn: int, spec: ipc.WorkerSpec) -> None:
        try:
            pid = processes.start(spec.argv, spec.env, spec.stdout, spec.stderr)
        except OSError as error:
            self._worker_ended(spawn, spec.local_rank, 0, 127, f"{error.strerror}: {error.filename!r}")
            return
        self._groups[spawn].add(pid, spec.local_rank)
        self._children.send(ipc.WorkerStarted(spawn, spec.local_rank, pid, warm=False))

    def _on_stop(self, message: ipc.Stop) -> None:
        group = self._groups.setdefault(message.spawn, WorkerProcesses(message.spawn))
        self._warm.forget(message.spawn)
        group.stop(message.first, message.grace_seconds, time.monotonic())

    def _on_kill(self, message: ipc.Kill) -> None:
        for rank in self._warm.forget(message.spawn, message.local_ranks):
            self._worker_ended(message.spawn, rank, 0, -signal.SIGKILL)
        if message.spawn in self._groups:
            self._groups[message.spawn].kill_workers(message.local_ranks)

    def _kill_leftovers(self, group: WorkerProcesses) -> None:
        """Kill the processes that ended workers left, before new workers take their places beside living ones."""
        ended = {pid: started for pid, started in group.leaders.items() if pid not in group.alive}
        group.leaders = {pid: started for pid, started in group.leaders.items() if pid in group.alive}
        known = {*self._children.known(), self._warm.pid, *group.alive, *group.unwanted}
        for process in ownership.members(processes.scan(), ended, owner=self._owner, known=known):
            processes.send(process.pid, signal.SIGKILL)

    def _on_dump_stacks(self, message: ipc.DumpStacks) -> None:
        if message.spawn in self._groups:
            self._groups[message.spawn].dump_stacks()

    def _on_hold_store(self, _message: ipc.HoldStore) -> None:
        self._children.hold_store()

    def _on_beat_acked(self, message: ipc.BeatAcked) -> None:
        self._check_dead_man(time.monotonic())
        self._orphan_timeout = message.orphan_timeout_seconds
        self._dead_man = message.sent_at + self._orphan_timeout

    def _on_resume(self, message: ipc.Resume) -> None:
        """Resume suspended workers: the store has answered since, and its answer re-arms the timer as a beat's does."""
        group, now = self._groups.get(message.spawn), time.monotonic()
        if group is not None and group.resume(now):
            answered = now - worker_processes.SUSPENDED_SECONDS  # or later
            self._dead_man = max(answered + self._orphan_timeout, self._dead_man or 0.0)

    def _on_agent_beat(self, message: ipc.AgentBeat) -> None:
        self._beats += 1
        self._phase = message.phase

    def _on_host_store(self, message: ipc.HostStore) -> None:
        self._children.host_store(message)

    def _on_note(self, message: ipc.Note) -> None:
        self.report = message.report

    def _on_leave(self, message: ipc.Leave) -> None:
        self.outcome = message
        self._kill_all(time.monotonic())

    # ----------------------------------------------------------------- warm

    def _on_warm_up(self, _message: ipc.WarmUp) -> None:
        self._warm.want_now()

    def _keep_warm(self, now: float, selector: selectors.BaseSelector) -> None:
        if self._warm.is_due(now, time.time()):
            try:
                self._warm.start()
            except OSError as error:
                self._children.send(ipc.ForkServerState(ready=False, message=f"cold starts only: {error}"))
                self._start_all_cold(self._warm.take_held())
                return
            selector.register(self._warm.channel, selectors.EVENT_READ, lambda: self._on_warm(selector))
        self._warm.load_more(now, time.time())
        if self._warm.is_late(now):
            self._give_up_warm(selector)

    def _on_warm(self, selector: selectors.BaseSelector) -> None:
        answer = self._warm.receive()
        if answer is None:
            self._give_up_warm(selector)
        elif isinstance(answer, ipc.ForkServerState):
            self._children.send(answer)
            held = self._warm.take_held()
            self._start_all_cold([each for each in held if not self._warm.request(each.spawn, each.spec)])
        elif isinstance(answer, Forked):
            self._on_forked(answer)

    def _on_forked(self, answer: Forked) -> None:
        request, pid = answer.request, answer.pid
        ended = self._strays.pop(pid, None)
        if isinstance(request, int):
            if ended is None and request in self._groups:
                self._groups[request].unwanted.add(pid)
                processes.send(pid, signal.SIGKILL)
            return
        if ended is not None:
            os.close(request.go)
            self._worker_ended(request.spawn, request.spec.local_rank, pid, ended)
            return
        self._groups[request.spawn].add(pid, request.spec.local_rank)
        self._warm.release(request)
        self._children.send(ipc.WorkerStarted(request.spawn, request.spec.local_rank, pid, warm=True))

    def _give_up_warm(self, selector: selectors.BaseSelector) -> None:
        selector.unregister(self._warm.channel)
        self._children.send(ipc.ForkServerState(ready=False, message="cold starts only: the fork server is gone"))
        self._start_all_cold(self._warm.kill())

    def _start_all_cold(self, left: Iterable[Held]) -> None:
        """Start all held and requested workers cold, since the fork server forks none."""
        for each in left:
            self._start_cold(each.spawn, each.spec)

    # ------------------------------------------------------------ processes

    def _reap(self) -> None:
        for pid, status in self._children.reap():
            self._warm.reaped(pid)
            code = os.waitstatus_to_exitcode(status)
            self._strays[pid] = code
            for group in self._groups.values():
                group.unwanted.discard(pid)
                if pid in group.alive:
                    self._worker_ended(group.spawn, group.alive.pop(pid), pid, code)
        if not self._warm.requests.outstanding:
            self._strays.clear()

    def _worker_ended(self, spawn: int, rank: int, pid: int, code: int, error: str = "") -> None:
        self._children.send(ipc.WorkerEnded(spawn, rank, pid, code, time.monotonic(), error))

    def _stop_groups(self, now: float) -> None:
        for group in self._groups.values():
            group.give_up(now)
            group.go_on(now)
        for group in [group for group in self._groups.values() if group.must_die(now)]:
            self._warm.forget(group.spawn)
            left = self._left(group)
            if not left and not group.unwanted and not self._warm.requests.concerns(group.spawn):
                del self._groups[group.spawn]
                self._children.send(ipc.GroupGone(group.spawn, tuple(group.killed), group.orphaned))
                continue
            group.kill(left, now)
            if group.is_stuck(now):
                del self._groups[group.spawn]
                self.is_clear = False
                self._end(exit_codes.RETRY, f"Killed processes do not end: {worker_processes.describe(left)}.")

    def _left(self, group: WorkerProcesses) -> tuple[processes.Process, ...]:
        others = (pid for other in self._groups.values() if other is not group for pid in other.alive)
        known = {*self._children.known(), self._warm.pid, *others}
        return ownership.members(processes.scan(), group.leaders, owner=self._owner, known=known)

    def _kill_all(self, now: float) -> None:
        self._warm.kill()
        for group in self._groups.values():
            group.stop("SIGKILL", 0.0, now)

    def _clear(self, now: float) -> None:
        self._reap()
        self._stop_groups(now)

    # ------------------------------------------------------------ deadlines

    def _tell_signals(self, now: float) -> None:
        for number in self._signals.caught[self._told :]:
            self._children.send(ipc.SignalCaught(number))
            self._told += 1
            running = any(group.alive for group in self._groups.values())
            patience = SIGNAL_MARGIN_SECONDS + (self._grace if running else 0.0)
            if number == signal.SIGINT and self._told > 1:
                patience = 0.0  # a second Ctrl-C ends the workers at once
            self._end_by = min(now + patience, self._end_by or now + patience)

    def _check_dead_man(self, now: float) -> None:
        if self._dead_man is None or now < self._dead_man:
            return
        self._dead_man = None
        for group in self._groups.values():
            self._children.send(ipc.Suspended(group.spawn))
            group.suspend(now)

    def _check_agent(self, now: float) -> None:
        if now < self._next_watch or self.outcome is not None:
            return
        self._next_watch = now + _TICK_SECONDS
        group = self._groups.get(self._spawn)
        seen = watchdog.Observation(
            now=now,
            beats=self._beats,
            phase=self._phase,
            spawn=self._spawn,
            running=len(group.alive) + self._warm.waiting(group.spawn) if group else 0,
            started=self._started,
            stopping=group is None or group.deadline is not None,
        )
        self._watch, fire = watchdog.decide(self._watch, seen)
        if fire is not None:
            self.agent_failure = "stuck"
            self._children.dump_agent()
            self._end(exit_codes.RETRY, fire.reason)

    def _end(self, code: int, reason: str) -> None:
        """End the run without the agent."""
        if self.outcome is None:
            self.outcome = ipc.Leave(code, reason)
        self._kill_all(time.monotonic())
