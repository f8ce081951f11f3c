"""The log lines on events while a job runs: one line for each fact, though every node reports it. Pure."""

from __future__ import annotations

from typing import Final

from elastic_infra.timeline import formatting
from elastic_infra.timeline.generations import Generation
from elastic_infra.timeline.job import Job
from elastic_infra.timeline.records import Record

_OF_THE_GROUP: Final = frozenset({"workers_started", "restart", "membership_change", "progress"})


def about(record: Record) -> str:
    """The node that the line on an event is about; empty for the whole job."""
    is_whole = record.event in {*_OF_THE_GROUP, "succeeded", "node_lost"} or _is_the_end(record)
    return "" if is_whole else record.node


def tell(before: Job, after: Job, record: Record) -> str:
    """The line on an event that took a job from one state to the next; empty where an earlier line has said it."""
    if record.event in _OF_THE_GROUP:
        is_new = len(after.generations) > len(before.generations)
        return _of_group(None if is_new else _entry(before, record), _entry(after, record), record)
    if record.event in {"succeeded", "job_succeeded", "job_failed"} or _is_the_end(record):
        return "" if before.outcome == after.outcome else _outcome(after)
    if record.event == "node_lost":
        lost = before.nodes.get(record.text("lost"))
        return "" if lost is not None and lost.phase == "gone" else formatting.tell(record)
    return formatting.tell(record)


def _of_group(before: Generation | None, now: Generation | None, record: Record) -> str:
    if now is None:
        return ""
    if record.event == "workers_started":
        is_first = before is None or not before.nodes
        size = f"{formatting.count(now.world_size, 'worker')} on {formatting.count(now.size, 'node')}"
        if before is None and now.kind:  # numbers start again, which no event reports
            return formatting.restart(now)
        return f"generation {now.number}: {size}" if is_first else ""
    if record.event == "progress":
        began = now.steps is not None and (before is None or before.steps is None)
        return f"generation {now.number} trains from step {now.steps.first} on" if began and now.steps else ""
    return formatting.restart(now) if before is None or before.cause is None else ""


def _entry(job: Job, record: Record) -> Generation | None:
    """The newest generation with the record's number."""
    return next((entry for entry in reversed(job.generations) if entry.number == record.generation), None)


def _is_the_end(record: Record) -> bool:
    return record.event == "failed" and record.text("reason") == "the job is over"


def _outcome(job: Job) -> str:
    return f"the job {job.outcome}" + (f": {job.reason}" if job.reason else "")
