"""Runs a job to its end: takes signals, exits, events and typed faults, and carries out the machine's decisions."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import signal
import sys
import time
from collections.abc import Iterator
from typing import Final, Literal, Protocol

from elastic_infra.local import controller, watch
from elastic_infra.local.faults import Fault, FaultError, KillWorker, StopWorker, check, parse_fault
from elastic_infra.local.job import LocalJob
from elastic_infra.local.journal import Journal
from elastic_infra.local.kubelet import Ended, Kubelet
from elastic_infra.local.plan import Plan
from elastic_infra.local.schedule import Schedule, advance
from elastic_infra.local.state import (
    STORE,
    Action,
    Event,
    Exited,
    Interrupted,
    Judged,
    Kill,
    Missed,
    Outcome,
    Signal,
    Start,
    Struck,
    Terminate,
    Tick,
    TimedOut,
)
from elastic_infra.timeline.files import Reader
from elastic_infra.timeline.records import Record

LOOK_SECONDS: Final = 0.2
"""Seconds between two looks for new events: a fault of a plan is late by at most this time."""

_STOP: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class View(Protocol):
    """Shows a run while it goes on."""

    def update(self, records: tuple[Record, ...]) -> None:
        """Show new records; called a few times a second, also without records."""

    def close(self) -> None:
        """Show the end of the run."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The user's choices for a run.

    Attributes:
        plan: faults to come.
        origin: where they come from.
        timeout_seconds: seconds after which the job counts as failed; None for never.
        reads_faults: whether faults may be typed on standard input.
    """

    plan: Plan = ()
    origin: Literal["plan", "chaos"] = "plan"
    timeout_seconds: float | None = None
    reads_faults: bool = False


class Runner:
    """One run of one job."""

    def __init__(self, job: LocalJob, kubelet: Kubelet, reader: Reader, journal: Journal, view: View) -> None:
        self._job = job
        self._kubelet = kubelet
        self._reader = reader
        self._journal = journal
        self._view = view
        self._state = controller.begin(job.rules, job.shape.nodes, has_store=job.store is not None)
        self._training = watch.Training()
        self.records: list[Record] = []
        """All events, in the order in which they were read."""
        self.missed: list[str] = []
        """The faults of the plan that had no effect, each with the reason."""
        self._misses: list[str] = []
        """The same with typed faults."""
        self._failed = ""
        """The pod whose end failed the job."""

    def run(self, options: Options) -> Outcome:
        """Run the job; on return no process of it is left.

        Raises:
            OSError: a process cannot be started.
        """
        try:
            self._kubelet.open()
            with _signals() as wake_up, selectors.DefaultSelector() as selector:
                selector.register(wake_up, selectors.EVENT_READ, lambda: self._hear_signals(wake_up))
                if options.reads_faults:
                    selector.register(sys.stdin, selectors.EVENT_READ, lambda: self._hear_typed(selector))
                return self._serve(options, selector)
        finally:
            self._kubelet.close()
            self._look()
            self._view.close()

    def causes(self) -> tuple[str, ...]:
        """The reason that the launcher of the failed node left, line by line."""
        return tuple(self._kubelet.root_cause(self._failed).splitlines()) if self._failed else ()

    def _serve(self, options: Options, selector: selectors.BaseSelector) -> Outcome:
        schedule = Schedule(options.plan)
        ends_at = None if options.timeout_seconds is None else time.monotonic() + options.timeout_seconds
        while not controller.is_over(self._state):
            now = time.monotonic()
            self._handle(Tick(), now)
            if ends_at is not None and now >= ends_at and options.timeout_seconds is not None:
                self._handle(TimedOut(options.timeout_seconds), now)
            for key, _ in selector.select(self._patience(now)):
                key.data()
            self._reap()
            self._look()
            schedule = self._strike(schedule, options.origin)
        assert self._state.outcome is not None  # noqa: S101 - that is what being over means
        if not self._state.outcome.interrupted:
            for entry in schedule.left:
                self._miss(entry.fault, "the job ended before its time came")
                self.missed.append(self._misses[-1])
        return self._state.outcome

    def _patience(self, now: float) -> float:
        due = controller.deadline(self._state)
        return LOOK_SECONDS if due is None else min(LOOK_SECONDS, max(0.0, due - now))

    def _strike(self, schedule: Schedule, origin: str) -> Schedule:
        now = time.monotonic()
        schedule, entry = advance(schedule, self._state, self._training, self._job.shape.workers, now)
        if entry is not None:
            self._journal.write("fault", fault=str(entry.fault), origin=origin)
            known = len(self._misses)
            self._handle(Struck(entry.fault), now)
            if new := self._misses[known:]:
                self.missed += new
                schedule = schedule.missed()
        return schedule

    def _miss(self, fault: Fault, reason: str) -> None:
        self._misses.append(f"`{fault}`: {reason}")
        self._journal.write("fault_missed", fault=str(fault), reason=reason)

    # ------------------------------------------------------------- what is heard

    def _hear_signals(self, wake_up: int) -> None:
        for number in os.read(wake_up, 64):
            if number in _STOP:
                meaning = "all nodes are preempted" if self._state.outcome is None else "what is left is killed"
                self._journal.write("interrupted", signal=signal.Signals(number).name, meaning=meaning)
                self._handle(Interrupted(), time.monotonic())

    def _hear_typed(self, selector: selectors.BaseSelector) -> None:
        if _is_in_background(sys.stdin.fileno()):
            return  # the shell reads typed input
        try:
            line = sys.stdin.readline()
        except OSError:
            line = ""  # the terminal was closed, but the job goes on
        if not line:
            selector.unregister(sys.stdin)
        elif line.strip():
            try:
                fault = parse_fault(line)
                check(fault, self._job.shape, self._state.nodes)
            except FaultError as error:
                self._journal.write("refused", message=str(error))
            else:
                self._journal.write("fault", fault=str(fault), origin="typed")
                self._handle(Struck(fault), time.monotonic())

    def _reap(self) -> None:
        for ended in self._kubelet.reap():
            self._handle(Exited(ended.name, ended.code), time.monotonic(), ended)

    def _look(self) -> None:
        new, now = self._reader.read(), time.monotonic()
        for record in new:
            self._training = watch.apply_record(self._training, record, now)
        self.records += new
        self._view.update(new)

    # ------------------------------------------------------------- what is done

    def _handle(self, event: Event, now: float, ended: Ended | None = None) -> None:
        before = self._state
        self._state, actions = controller.step(before, event, now)
        for action in actions:
            self._do(action, ended)
        if before.outcome is None and self._state.outcome is not None:
            self._tell(self._state.outcome)

    def _tell(self, outcome: Outcome) -> None:
        if outcome.succeeded:
            self._journal.write("job_succeeded")
        else:
            self._journal.write("job_failed", reason=outcome.reason)

    def _do(self, action: Action, ended: Ended | None) -> None:
        match action:
            case Start(name, is_new):
                pid = self._kubelet.start(name, is_new=is_new)
                self._journal.write("store_started" if name == STORE else "node_started", name, pid=pid)
            case Terminate(name):
                self._kubelet.terminate(name)
            case Kill(name):
                self._kubelet.kill(name)
            case Signal(name, local_rank, number):
                pid_of_worker = self._training.workers.get((name, local_rank))
                if not self._kubelet.signal_worker(name, pid_of_worker, signal.Signals[number]):
                    self._miss(_fault_of(action), f"worker {local_rank} of {name} is not running")
            case Missed(fault, reason):
                self._miss(fault, reason)
            case Judged():
                self._judged(action, ended)

    def _judged(self, action: Judged, ended: Ended | None) -> None:
        if action.verdict == "permanent":
            self._failed = action.name
        event = "store_exited" if action.name == STORE else "node_exited"
        if ended is not None and ended.signal is not None:
            self._journal.write(event, action.name, signal=ended.signal, verdict=action.verdict)
        else:
            self._journal.write(event, action.name, exit_code=action.code, verdict=action.verdict)


def _fault_of(action: Signal) -> Fault:
    kind = KillWorker if action.signal == "SIGKILL" else StopWorker
    return kind(int(action.name.removeprefix("node-")), action.local_rank)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that tells which signals came, while their usual effect is off."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    numbers = (*_STOP, signal.SIGCHLD)
    before = {number: signal.signal(number, _nothing) for number in numbers}
    woken = signal.set_wakeup_fd(writer)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _nothing(number: int, frame: object) -> None:
    del number, frame  # the wake-up descriptor tells the signal


def _is_in_background(terminal: int) -> bool:
    """Whether another process group of the session has the terminal; False for a terminal that controls no session."""
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:
        return False
