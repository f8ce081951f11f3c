"""The agent: an event loop around ``protocol.machine.step``, which makes every decision.

The agent turns messages of the supervisor, the store and the workers into events, and carries the machine's actions
out. The supervisor forks the agent into a separate process, which imports no torch, starts no process and never blocks.
"""

from __future__ import annotations

import collections
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from .. import console, exit_codes, ipc, log
from ..command_line.plan import Plan
from ..protocol import events, machine, ranks, report
from ..protocol.actions import (
    ChoosePort,
    CompareAndSet,
    Emit,
    Exit,
    KillWorkers,
    ParkWorkers,
    PrepareWorkers,
    Publish,
    PublishMaster,
    ResumeWorkers,
    SetStopStep,
    StartWorkers,
    StopWorkers,
    Tell,
)
from ..protocol.state import State, start
from ..run_dir import RunDir
from ..settings import LauncherSettings
from ..store import client
from ..store import link as links
from . import (
    protocol_config,
    steps,
    store_host,
    store_session,
    telemetry,
    warm_up,
    webhook,
    worker_channels,
    worker_group,
)

IDLE_SECONDS: Final = 0.5
"""The loop goes round at least this often: the supervisor expects a beat a second."""
BUSY_SECONDS: Final = 0.05
"""The same while the machine waits for a stop step, a last call, or a member whose connection ended."""
KEEP_STORE_SECONDS: Final = 30.0
"""How long a hosted store waits at the end of the job for peers to read the result; the store ends earlier once all
peers have gone."""
DELIVERY_SECONDS: Final = 60.0
"""How long after the end teed output may wait for the console's reader: a reader paused for good must not keep a
node."""
LAST_LINES_SECONDS: Final = 1.0
"""The same for the launcher's own lines, which are short and are written to no file."""
STDERR: Final = 2
HANG_LOOK_SECONDS: Final = 0.5
STORE_BUFFER_SECONDS: Final = 0.002
"""After this wait the step of a worker that read the old stop step is visible in the progress memory, since no
processor holds a write back for so long. Without the wait a worker could pass the stop step unseen."""


class Agent:
    """The event loop of one node's agent: store, supervisor and progress in, actions of the machine out."""

    def __init__(
        self,
        channel: ipc.Channel,
        plan: Plan,
        settings: LauncherSettings,
        group: worker_group.WorkerGroup,
        lines: console.Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._plan = plan
        self._settings = settings
        self._group = group
        self._lines = lines
        self._clock = clock
        self._events: collections.deque[events.Event] = collections.deque()
        self._state: State = start(
            protocol_config.node_of(plan, settings), protocol_config.limits_of(plan, settings), clock()
        )
        self._steps = steps.Watch()
        self._warming = warm_up.Warming(channel, group)
        self._observer = telemetry.Observer(plan, settings, self._state.node.uuid, lines)
        self._look_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._store = store_session.Rendezvous(channel, plan, settings, self._state.node.uuid, clock)
        self._workers = worker_channels.WorkerChannels(self._selector, self._events.append, plan.nproc_per_node)
        self._left = False
        self._webhook: webhook.Delivery | None = None
        self._reserved_port: socket.socket | None = None
        """Held while this node leads a generation: cold workers bind the port seconds after the agent has chosen it."""
        self._log = log.Log(settings.log_level, lines.say)

    def run(self) -> None:
        """Serve until the machine says to leave; returns once ``Leave`` is sent."""
        self._observer.serve()
        self._selector.register(self._channel, selectors.EVENT_READ, self._on_channel)
        self._workers.listen(self._group.channel)
        if self._store.knows_port:
            self._connect(self._plan.port)
        while True:
            self._take_steps()
            if self._left:
                return
            self._channel.send(ipc.AgentBeat(self._phase()))
            ready = self._selector.select(self._patience())
            self._read_steps()  # before the machine decides on the messages
            self._take_steps()
            for key, _ in ready:
                key.data()
            self._look_for_hangs()
            self._events.extend(self._warming.look(self._state, self._clock()))
            self._observer.update(self._state, self._phase(), self._group.running, self._clock())
            self._events.append(events.Tick())

    def _take_steps(self) -> None:
        while self._events and not self._left:
            before, event = machine.next_event(self._state, self._events, self._clock())
            self._state, actions = machine.step(before, event, self._clock())
            for line in report.transitions(before, self._state, actions):
                self._log.tell("info", line)
            if self._log.shows("debug") and (actions or not isinstance(event, events.Tick)):
                self._log.tell("debug", f"{self._clock():.3f} {event} -> {actions}")
            for action in actions:
                self._action_handlers[type(action)](self, action)

    def _patience(self) -> float:
        generation = self._state.generation
        settled = generation is not None and generation.phase == "running" and self._state.active
        watched = self._state.leaving or (generation is not None and self._state.store.disconnected(generation))
        return IDLE_SECONDS if settled and not watched else BUSY_SECONDS

    def _phase(self) -> ipc.AgentPhase:
        group = self._state.workers
        if group is None or group.phase == "stopped":
            return "rendezvous"
        phases: Mapping[str, ipc.AgentPhase] = {
            "preparing": "starting",
            "running": "monitoring",
            "stopping": "stopping",
            "parking": "monitoring",
            "parked": "rendezvous",
            "finished": "finishing",
        }
        return phases[group.phase]

    def _generation(self) -> int:
        return self._state.workers.identity[0] if self._state.workers else 0

    def _on_link(self) -> None:
        for notification in self._store.take():
            if isinstance(notification, client.Acknowledged):
                self._channel.send(ipc.BeatAcked(notification.sent_at, self._settings.orphan_timeout_seconds))
            elif isinstance(notification, links.Holding):
                self._hold(notification)
            elif isinstance(notification, links.Unreachable):
                self._log.tell("warning", self._store.trouble(notification))
            elif isinstance(notification, links.Rejected):
                self._leave(
                    exit_codes.USAGE, f"The store at {self._store.endpoint} refuses this node: {notification.reason}"
                )
            else:
                self._events.append(notification)
        self._take_steps()

    def _hold(self, notification: links.Holding) -> None:
        self._channel.send(ipc.HoldStore(), notification.descriptor)
        os.close(notification.descriptor)
        if not self._state.node.address:
            address = store_host.reachable(notification.address, self._plan.host)
            self._state = protocol_config.with_address(self._state, address)

    def _on_channel(self) -> None:
        for message in self._channel.receive():
            handler = self._message_handlers.get(type(message))
            if handler is not None:
                handler(self, message)
                self._take_steps()

    def _on_started(self, message: ipc.WorkerStarted) -> None:
        self._group.started(message)
        if message.spawn == self._group.spawn:
            self._workers.started(message.local_rank, message.pid)
        fields = {"local_rank": message.local_rank, "pid": message.pid, "warm": message.warm}
        self._observer.emit("worker_started", self._state, fields)

    def _on_fork_server(self, message: ipc.ForkServerState) -> None:
        self._observer.fork_server_ready, self._warming.is_over = message.ready, True
        self._observer.emit("fork_server", self._state, {"ready": message.ready, "message": message.message})
        self._tell(Tell("info", f"Fork server: {message.message}."))
        if message.left_out:
            names = ", ".join(message.left_out)
            self._tell(Tell("warning", f"Warm start leaves to every worker's own import: {names}."))

    def _on_ended(self, message: ipc.WorkerEnded) -> None:
        if message.spawn != self._group.spawn:
            return
        self._group.ended(message)
        self._read_steps()
        self._take_steps()
        slots = self._group.read()
        stopped = message.local_rank < len(slots) and slots[message.local_rank].stopped
        generation = self._generation()
        text, exception = message.error, ""
        if message.exit_code != 0:
            exception = self._group.exception(message.local_rank)
        if message.exit_code != 0 and not self._was_told(generation):
            text = self._group.failure(message, self._finished_elsewhere()).message
            self._channel.send(ipc.Note(self._group.root_cause()))
        self._events.append(
            events.WorkerExited(generation, message.local_rank, message.exit_code, text, exception, stopped)
        )

    def _was_told(self, generation: int) -> bool:
        """Whether errors of these workers are no cause of a failure: they were told to end, or are on standby."""
        group = self._state.workers
        if group is None or group.identity[0] != generation:
            return True
        return group.told or group.on_standby or group.phase == "stopping" or bool(group.suspension)

    def _finished_elsewhere(self) -> tuple[int, ...]:
        """Ranks on other nodes that have exited 0 in the generation of the workers here, as far as records tell."""
        generation = self._state.generation
        if generation is None or self._state.workers_of(generation) is None:
            return ()
        return ranks.of_finished_nodes(generation, (peer.record for peer in self._state.store.peers))

    def _on_suspended(self, message: ipc.Suspended) -> None:
        if message.spawn == self._group.spawn:
            self._events.append(events.WorkersSuspended(self._generation()))

    def _on_gone(self, message: ipc.GroupGone) -> None:
        if message.spawn != self._group.spawn:
            return  # a repeated answer to a repeated request: the files of these workers are closed already
        self._read_steps()
        self._take_steps()
        self._group.close()
        self._release_port()
        self._events.append(events.WorkersGone(self._generation(), message.orphaned))

    def _on_signal(self, message: ipc.SignalCaught) -> None:
        self._group.set_leaving()
        self._events.append(events.SignalSeen(message.signal))

    def _on_hosted(self, message: ipc.StoreHosted) -> None:
        if self._store.is_looking and message.error:
            self._leave(exit_codes.RETRY, f"No store can be served here: {message.error}")
        elif self._store.is_looking:
            self._connect(message.port)

    def _connect(self, port: int) -> None:
        self._selector.register(self._store.connect(port), selectors.EVENT_READ, self._on_link)

    def _read_steps(self) -> None:
        workers = self._state.workers
        if workers is None or workers.phase not in {"running", "stopping", "parking"}:
            return
        slots = self._group.read()
        self._observer.look(self._state, self._generation(), slots)
        seen = self._steps.look(self._generation(), slots, self._clock())
        if seen is not None:
            self._events.append(seen)
            self._observer.progress(self._state, seen, self._clock())

    def _look_for_hangs(self) -> None:
        now = self._clock()
        workers = self._state.workers
        if workers is None or workers.phase not in {"running", "stopping"} or now < self._look_at:
            return
        self._look_at = now + HANG_LOOK_SECONDS
        verdict = self._group.look_for_hangs(now)
        if verdict is None:
            return
        if verdict.kind == "hang":
            self._events.append(events.HangSeen(self._generation(), verdict.local_rank, verdict.message))
            return
        self._observer.emit("hang_suspected", self._state, {"message": verdict.message})
        self._tell(Tell("warning", f"{verdict.message} Stacks follow."))
        self._channel.send(ipc.DumpStacks(self._group.spawn))

    def _order_store(self, action: client.Order) -> None:
        self._store.order(action)

    def _choose_port(self, action: ChoosePort) -> None:
        fixed = self._plan.master
        if fixed and fixed[1]:
            self._events.append(events.PortChosen(action.generation, fixed[1]))
            return
        self._release_port()
        self._reserved_port = store_host.reserve_port(self._state.node.address)
        self._events.append(events.PortChosen(action.generation, int(self._reserved_port.getsockname()[1])))

    def _release_port(self) -> None:
        """Free the port: the workers that met at it are gone, or another port replaces it."""
        if self._reserved_port is not None:
            self._reserved_port.close()
            self._reserved_port = None

    def _start_workers(self, action: StartWorkers) -> None:
        try:
            spawn = self._group.move(action, action.kept) if action.kept else self._group.start(action)
        except OSError as error:
            self._leave(exit_codes.of_log_folder(error), f"Workers cannot be started: {error}")
            return
        self._steps = steps.Watch(self._steps.durations)
        self._workers.begin(action.generation, self._group.enters(), action.kept)
        if spawn.workers:
            self._channel.send(spawn)

    def _prepare_workers(self, action: PrepareWorkers) -> None:
        try:
            spawn = self._group.move(action.place, action.kept) if action.kept else self._group.start(action.place)
        except OSError as error:
            self._leave(exit_codes.of_log_folder(error), f"Workers cannot be started: {error}")
            return
        self._workers.prepare(action.kept)
        if spawn.workers:
            self._channel.send(spawn)

    def _stop_workers(self, action: StopWorkers) -> None:
        self._workers.dismiss(action.saves)
        self._channel.send(ipc.Stop(self._group.spawn, action.grace_seconds, action.first, action.reason))

    def _park_workers(self, action: ParkWorkers) -> None:
        self._group.withdraw_stop()
        self._workers.part(action.generation)

    def _kill_workers(self, action: KillWorkers) -> None:
        self._channel.send(ipc.Kill(self._group.spawn, action.local_ranks))

    def _resume_workers(self, _action: ResumeWorkers) -> None:
        self._channel.send(ipc.Resume(self._group.spawn))

    def _set_stop_step(self, action: SetStopStep) -> None:
        self._group.set_stop(action.generation, action.step, agreed=action.agreed)
        time.sleep(STORE_BUFFER_SECONDS)
        self._steps.forget()  # only steps read from now on show whether the stop step still lies ahead
        self._read_steps()

    def _emit(self, action: Emit) -> None:
        self._observer.emit(action.event, self._state, dict(action.fields))

    def _tell(self, action: Tell) -> None:
        self._log.tell(action.level, action.line)

    def _exit(self, action: Exit) -> None:
        reason = action.reason
        if action.cause is not None and action.cause.message:
            reason = f"{reason}: {action.cause.message}"
        end = self._state.generation
        if self._settings.webhook_url and end is not None and end.ended_by == self._state.node.uuid:
            self._webhook = webhook.Delivery(self._settings.webhook_url, webhook.message(self._plan.run_id, end))
        keep = KEEP_STORE_SECONDS if not self._state.leaving else 0.0
        self._leave(action.code, reason, keep)

    def _leave(self, code: int, reason: str, keep_store_seconds: float = 0.0) -> None:
        self._left = True
        self._store.close()
        self._workers.close()
        delivery_seconds = 0.0 if self._state.leaving else DELIVERY_SECONDS
        self._channel.send(ipc.Leave(code, reason, keep_store_seconds, delivery_seconds))

    def deliver(self) -> None:
        """Wait within bounds until the console's reader has taken all output; the agent takes no decision meanwhile."""
        left = self._group.deliver(0.0 if self._state.leaving else DELIVERY_SECONDS)
        if left:
            names = ", ".join(left)
            self._lines.say(f"The reader of the console is too slow. The output it did not take is in {names}.")
        self._await_webhook()
        self._lines.close(LAST_LINES_SECONDS)

    def _await_webhook(self) -> None:
        if self._webhook is None:
            return
        trouble = self._webhook.wait(webhook.LEAVING_SECONDS if self._state.leaving else webhook.WAIT_SECONDS)
        if trouble:
            self._log.tell("warning", f"The webhook did not take the message of the job's end: {trouble}.")

    _action_handlers: Final[Mapping[type, Callable[[Agent, Any], None]]] = {
        CompareAndSet: _order_store,
        Publish: _order_store,
        PublishMaster: _order_store,
        ChoosePort: _choose_port,
        StartWorkers: _start_workers,
        PrepareWorkers: _prepare_workers,
        StopWorkers: _stop_workers,
        ParkWorkers: _park_workers,
        KillWorkers: _kill_workers,
        ResumeWorkers: _resume_workers,
        SetStopStep: _set_stop_step,
        Emit: _emit,
        Tell: _tell,
        Exit: _exit,
    }
    _message_handlers: Final[Mapping[type, Callable[[Agent, Any], None]]] = {
        ipc.WorkerStarted: _on_started,
        ipc.ForkServerState: _on_fork_server,
        ipc.WorkerEnded: _on_ended,
        ipc.Suspended: _on_suspended,
        ipc.GroupGone: _on_gone,
        ipc.SignalCaught: _on_signal,
        ipc.StoreHosted: _on_hosted,
    }


def run(
    channel: ipc.Channel, plan: Plan, settings: LauncherSettings, environ: Mapping[str, str], run_dir: RunDir
) -> None:
    """The agent's entry point, in the process that the supervisor forked."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the console may lose its reader
    group = worker_group.WorkerGroup(plan, settings, environ, run_dir)
    agent = Agent(channel, plan, settings, group, console.Console.start(STDERR))
    agent.run()
    agent.deliver()
