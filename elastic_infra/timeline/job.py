"""The whole job at one moment, folded event by event, for the live view and the history. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from elastic_infra.timeline import generations as groups
from elastic_infra.timeline import nodes
from elastic_infra.timeline.nodes import Change, Node
from elastic_infra.timeline.records import Record

Outcome = Literal["running", "succeeded", "failed"]

STORE: Final = "store"
"""The local runner's name for the store, which is no node and has no lane."""


@dataclass(frozen=True)
class Job:
    """The facts about the job at one moment."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    generations: groups.Generations = ()
    outcome: Outcome = "running"
    reason: str = ""
    """Why the job failed; empty where it did not."""
    script: str = ""
    run_id: str = ""


def advance(job: Job, record: Record) -> tuple[Job, tuple[Change, ...]]:
    """The job after an event, and the phases that nodes entered by it."""
    job, changes = _of_node(job, record)
    if record.event == "launcher_started":
        job = replace(job, script=record.text("script") or job.script, run_id=record.text("run_id") or job.run_id)
    return _ended(replace(job, generations=groups.follow(job.generations, record)), record), changes


def _of_node(job: Job, record: Record) -> tuple[Job, tuple[Change, ...]]:
    if record.event == "node_lost" and record.text("lost") in job.nodes:
        lost, gone = nodes.lose(job.nodes[record.text("lost")], record.at)
        job, changes = _of_speaker(replace(job, nodes={**job.nodes, lost.name: lost}), record)
        return job, (*gone, *changes)
    return _of_speaker(job, record)


def _of_speaker(job: Job, record: Record) -> tuple[Job, tuple[Change, ...]]:
    if not record.node or record.node == STORE or record.event == "fault":
        return job, ()
    node, changes = nodes.follow(job.nodes.get(record.node, Node(record.node)), record)
    return replace(job, nodes={**job.nodes, node.name: node}), changes


def _ended(job: Job, record: Record) -> Job:
    """The outcome: from a launcher the end on which the nodes agreed, from the local runner the definite one."""
    if record.event in {"succeeded", "job_succeeded"}:
        return replace(job, outcome="succeeded", reason="")
    is_over = record.event == "failed" and record.text("reason") == "the job is over"
    if is_over or record.event == "job_failed":
        return replace(job, outcome="failed", reason=record.text("message") or record.text("reason"))
    if record.event == "workers_started" and job.outcome == "failed":
        return replace(job, outcome="running", reason="")
    return job
