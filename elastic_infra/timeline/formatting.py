"""The words for causes, phases, times and numbers in pictures, tables and log lines."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Final

from elastic_infra.timeline.generations import Cause, Generation, Kind
from elastic_infra.timeline.nodes import Phase
from elastic_infra.timeline.records import Record

MINUTE: Final = 60
HOUR: Final = 3600

PHASES: Final[Mapping[Phase, str]] = {
    "rendezvous": "the launcher starts, looks for its peers or waits for them; no worker runs",
    "start": "workers run and have not made a step yet",
    "run": "workers run; the script does not report its steps (elastic_infra.training.Progress does)",
    "train": "workers make steps",
    "hang": "workers no longer make steps, until that is noticed",
    "stop": "workers are told to end, or have begun to",
    "gone": "no launcher runs",
}


def short(node: str) -> str:
    """A node's name for a small place: a launcher's id is cut to its first characters."""
    return node[:8] if re.fullmatch(r"[0-9a-f]{32}", node) else node


def cause(why: Cause | None) -> str:
    """Why a generation ended, in one line."""
    if why is None:
        return "unknown"
    node = short(why.node) or "a node"
    said = {
        "scale_up": f"{node} joined",
        "leaving": f"{node} was told to end",
        "node_lost": f"{node} was lost",
        "worker_failed": f"a worker of {node} failed",
        "startup": f"a worker of {node} failed at its start",
        "no_progress": f"a worker of {node} failed at the same step again",
        "hang": f"a worker of {node} hung",
        "orphaned": f"{node} lost the store for too long",
        "relaunch": "all launchers began anew",
    }.get(why.kind, why.kind or "unknown")
    return f"{said}: {why.message.rstrip('.')}" if why.message else said


def seconds(amount: float) -> str:
    """A duration, as short as its size allows."""
    if amount < MINUTE:
        return f"{amount:.1f} s"
    whole = round(amount)
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    minutes = round(amount / MINUTE)
    return f"{minutes // MINUTE} h {minutes % MINUTE} min"


def percent(share: float | None) -> str:
    """A share of time in percent, or "unknown"."""
    return "unknown" if share is None else f"{100 * share:.1f} %"


def moment(at: float) -> str:
    """A moment in UTC."""
    return dt.datetime.fromtimestamp(at, tz=dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def count(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tell(record: Record) -> str:
    """One line on an event that readers need; empty for other events."""
    rule = _LINES.get(record.event)
    return rule(record) if rule else ""


def _exit(record: Record) -> str:
    signal, code = record.whole("signal"), record.whole("exit_code")
    how = f"was killed by signal {signal}" if signal else f"exited {code or 0}"
    verdict = record.text("verdict")
    return f"the node's launcher {how}" + (f" ({verdict})" if verdict else "")


def _worker(record: Record) -> str:
    code, message = record.whole("exit_code") or 0, record.text("message")
    rank = record.whole("local_rank")
    if code == 0 or not message:
        return ""
    return message or f"worker {rank} exited {code}"


def _began(record: Record) -> str:
    first, local = record.whole("first_rank"), record.whole("local_world_size")
    ranks = "" if first is None or not local else f", ranks {first} to {first + local - 1}"
    return f"generation {record.generation}: workers start{ranks} of {record.whole('world_size')}"


def changes(restarts: Mapping[Kind, int], moves: int) -> str:
    """Changes of generation by kind, and in how many of all workers kept their processes, where any did."""
    kinds = ", ".join(f"{kind} {number}" for kind, number in restarts.items())
    return kinds + (f"; {moves} in place" if moves else "")


def origin(source: str) -> str:
    """Where a state came from, in words."""
    return _ORIGINS.get(source, source)


def snapshots(checkpoint: int | None, memory_step: int | None) -> str:
    """The newest snapshots, in words; empty where none was reported."""
    places = ((checkpoint, "on disk"), (memory_step, "in memory"))
    return ", ".join(f"step {step} {place}" for step, place in places if step is not None)


def resumed(source: str, steps_lost: int) -> str:
    """How training went on after an outage: where its state came from, and repeated steps; empty if unknown."""
    again = f"; {count(steps_lost, 'step')} repeated" if steps_lost else ""
    return (f"; state from {origin(source)}" if source else "") + again


def restart(generation: Generation) -> str:
    """One line on why a generation came, with the kind by which the figures count it."""
    why = generation.cause
    known = Cause(why.kind, why.node) if why else None  # an earlier line has shown the message
    what = "in place" if generation.moved else "restart"
    return f"{what} ({generation.kind}): {cause(known)}; going on with {count(generation.world_size, 'worker')}"


_ORIGINS: Final[Mapping[str, str]] = {
    "process": "the processes",
    "memory": "the nodes' memory",
    "peer": "another node",
    "disk": "disk",
    "nothing": "the beginning",
}
_LINES: Final[Mapping[str, Callable[[Record], str]]] = {
    "fault": lambda record: f"fault: {record.text('fault')}",
    "fault_missed": lambda record: f"the fault {record.text('fault')} did not happen: {record.text('reason')}",
    "refused": lambda record: record.text("message"),
    "interrupted": lambda record: f"interrupted ({record.text('signal')}): {record.text('meaning')}",
    "node_started": lambda _: "starts",
    "node_exited": _exit,
    "store_started": lambda _: "the store starts",
    "store_exited": lambda _: "the store is gone",
    "job_succeeded": lambda _: "the job succeeded",
    "job_failed": lambda record: f"the job failed: {record.text('reason')}",
    "workers_started": _began,
    "worker_exited": _worker,
    "node_lost": lambda record: f"{short(record.text('lost'))} is lost",
    "hang_detected": lambda record: f"hang: {record.text('message')}",
    "hang_suspected": lambda record: f"possible hang: {record.text('message')}",
    "watchdog_fired": lambda record: f"the watchdog ended the agent: {record.text('message')}",
    "agent_replaced": lambda record: f"a new agent begins: {record.text('message')}",
    "preempted": lambda _: "leaves: it was told to end",
    "failed": lambda record: f"leaves with {record.whole('exit_code')}: {record.text('reason')}",
    "succeeded": lambda _: "succeeded",
}
