"""From records to a history: a lane for each node with its phases, marks for single events, the generations. Pure.

``history()`` builds it; ``figures`` computes figures about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from elastic_infra.timeline import formatting
from elastic_infra.timeline.generations import Generation
from elastic_infra.timeline.job import STORE, Job, Outcome, advance
from elastic_infra.timeline.nodes import Change, Phase
from elastic_infra.timeline.records import Record

MarkKind = Literal["fault", "worker", "hang", "lost", "exit"]
"""``fault``: injected by the local runner. ``worker``: a worker failed by itself. ``hang``: seen or suspected.
``lost``: peers report the node lost. ``exit``: the launcher ended without success."""

_MARKS: Final[dict[str, MarkKind]] = {
    "fault": "fault",
    "worker_exited": "worker",
    "hang_detected": "hang",
    "hang_suspected": "hang",
    "node_lost": "lost",
    "agent_replaced": "exit",
    "preempted": "exit",
    "failed": "exit",
    "node_exited": "exit",
    "store_exited": "exit",
    "job_failed": "exit",
}


@dataclass(frozen=True)
class Interval:
    """A node was in a phase from ``begin`` to ``end`` (Unix seconds)."""

    phase: Phase
    generation: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """The interval's length in seconds."""
        return self.end - self.begin


@dataclass(frozen=True)
class Mark:
    """An event at one moment, drawn as a mark."""

    at: float
    kind: MarkKind
    text: str


@dataclass(frozen=True)
class Lane:
    """The phases and marks of one node; times without an interval are times without the node."""

    node: str
    intervals: tuple[Interval, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class History:
    """A job's history, from the first event to the last."""

    begin: float
    end: float
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    """Marks of the job as a whole: its store, and faults that name no node."""
    generations: tuple[Generation, ...]
    outcome: Outcome
    reason: str
    script: str
    run_id: str

    @property
    def seconds(self) -> float:
        """Wall time from the first event to the last, in seconds."""
        return self.end - self.begin


def history(records: Sequence[Record]) -> History:
    """Fold records into a history; the records are sorted by time first.

    Raises:
        ValueError: there are no records.
    """
    if not records:
        message = "a history needs at least one record"
        raise ValueError(message)
    job, changes, marks = Job(), list[Change](), list[tuple[str, Mark]]()
    ordered = sorted(records, key=lambda record: record.at)
    for record in ordered:
        marks += _marks(job, record)
        job, new = advance(job, record)
        changes += new
    if not any(entry.steps for entry in job.generations):
        changes = list(_without_steps(changes))
    begin, end = ordered[0].at, max([each.at for each in ordered if each.node != STORE] or [ordered[-1].at])
    names = sorted((name for name, node in job.nodes.items() if node.has_joined), key=natural)
    lanes = tuple(_lane(name, changes, marks, end) for name in names)
    whole = tuple(mark for name, mark in marks if name not in names)
    known = job.outcome, job.reason, job.script, job.run_id
    return History(begin, end, lanes, whole, job.generations, *known)


def _without_steps(changes: Iterable[Change]) -> Iterator[Change]:
    """The phases for a script that reports no steps, so that the begin and end of its training are unknown."""
    for change in changes:
        if change.phase != "hang":
            yield replace(change, phase="run") if change.phase == "start" else change


def natural(name: str) -> tuple[object, ...]:
    """A sort key that puts node-10 after node-9."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name))


def _lane(name: str, changes: Iterable[Change], marks: Iterable[tuple[str, Mark]], end: float) -> Lane:
    own = [change for change in changes if change.node == name]
    ends = [*(change.at for change in own), end][1:]
    intervals = (
        Interval(change.phase, change.generation, change.at, until)
        for change, until in zip(own, ends, strict=True)
        if change.phase != "gone" and until > change.at
    )
    return Lane(name, tuple(intervals), tuple(mark for node, mark in marks if node == name))


def _marks(job: Job, record: Record) -> list[tuple[str, Mark]]:
    """The mark that an event leaves, with the lane it belongs to."""
    kind, text = _MARKS.get(record.event), formatting.tell(record)
    if kind is None or not text or _is_expected(job, record):
        return []
    if record.event == "node_lost":
        return _once(job, record, Mark(record.at, kind, f"{text}, says {formatting.short(record.node)}"))
    return [(_struck(record), Mark(record.at, kind, text))]


def _struck(record: Record) -> str:
    """The node of a mark: ``kill worker 1.0`` in the local runner's plan is a mark on ``node-1``."""
    named = re.search(r" (?:node|worker) (\d+)", f" {record.text('fault')}")
    return f"node-{named[1]}" if named and not record.node else record.node


def _once(job: Job, record: Record, mark: Mark) -> list[tuple[str, Mark]]:
    """The mark of a lost node, at the first report only, since every peer reports the loss."""
    lost = job.nodes.get(record.text("lost"))
    is_known = lost is not None and lost.phase == "gone"
    return [] if is_known else [(record.text("lost"), mark)]


def _is_expected(job: Job, record: Record) -> bool:
    """Whether an end needs no mark: it was without fault, or the launcher's last event has reported it."""
    node = job.nodes.get(record.node)
    if record.event == "failed" and record.text("reason") == "the job is over":
        return job.outcome == "failed"
    if record.event == "store_exited":
        return job.outcome != "running"
    if record.event != "node_exited":
        return False
    is_done = not record.whole("signal") and not record.whole("exit_code")
    return is_done or (node is not None and node.phase == "gone")
