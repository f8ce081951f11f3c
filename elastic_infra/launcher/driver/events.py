"""Kubernetes Events of the job's end and of its failures, made of the records on which its nodes agree. Pure.

An event's name follows from what it tells, so that one that was made before is refused by the API server: a driver that
starts again tells nothing twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..event_log import utc
from ..protocol.limits import Limits
from ..protocol.records import Cause, Generation
from .api_server import KINDS

COMPONENT: Final = "elastic-infra"
MOST_CHARACTERS: Final = 1024
"""Of a message: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/."""
FAILURES: Final = {
    "worker_failed": ("WorkerFailed", "a worker on {} failed"),
    "hang": ("WorkersHang", "the workers hang, and one on {} is furthest behind"),
    "node_lost": ("NodeLost", "{} was lost"),
    "orphaned": ("NodeLost", "{} had lost the store and ended its workers"),
}
"""By the kind of cause, the reason and the words of an event. Planned changes of the members are no failures."""


@dataclass(frozen=True)
class Note:
    """What an event tells.

    Attributes:
        key: the same for all notes of one failure of one run.
        reason: a word in the form of Kubernetes' own reasons.
        message: one sentence.
        is_warning: whether something went wrong.
    """

    key: str
    reason: str
    message: str
    is_warning: bool = True


def notes(record: Generation) -> Iterator[Note]:
    """What a record tells of the end, and of failures: a record that is running has the cause that ended the last."""
    cause = record.cause
    if record.phase == "final":
        yield _end(record)
    elif cause is not None and record.phase == "broken" and cause.kind != "hang":  # whose culprit the next record knows
        yield from _failure(record.number, cause)
    elif cause is not None and record.phase == "running":
        yield from _failure(record.number - 1, cause)
        if cause.uuid and cause.uuid == record.evicted:
            text = f"{cause.node} is left out: it keeps failing while the other nodes are healthy."
            yield Note(f"{record.number - 1} left out", "NodeLeftOut", text)
    for each in record.node_faults:
        if len(each.times) >= Limits.node_faults:
            text = f"{each.name} is not taken any more: {len(each.times)} generations ended by faults of its own."
            yield Note(f"refused {each.name}", "NodeRefused", text)


def _end(record: Generation) -> Note:
    code, restarts = record.exit_code or 0, f"after {record.budget.charged} restarts"
    if not code:
        return Note("end", "TrainingSucceeded", f"The training has succeeded {restarts}.", is_warning=False)
    why = f": {record.cause.message}" if record.cause is not None and record.cause.message else "."
    return Note("end", "TrainingFailed", f"The training has failed (exit code {code}) {restarts}{why}")


def _failure(number: int, cause: Cause) -> Iterator[Note]:
    if cause.kind in FAILURES:
        reason, words = FAILURES[cause.kind]
        why = f": {cause.message}" if cause.message else "."
        yield Note(f"{number} ended", reason, f"Generation {number} has ended, because {words.format(cause.node)}{why}")


def event(note: Note, kind: str, workload: Mapping[str, Any], run: str, now: float) -> dict[str, Any]:
    """The object that the API server gets.

    Args:
        note: what it tells.
        kind: the workload's.
        workload: the job that the event is about.
        run: the id of the run, for a job may have several.
        now: Unix seconds.
    """
    own, moment = workload["metadata"], utc(now)
    identity = hashlib.sha256("\n".join((own["uid"], run, note.key)).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{own['name']}.{identity}", "namespace": own["namespace"]},
        "involvedObject": {
            "apiVersion": KINDS[kind][0],
            "kind": kind,
            **{name: own[name] for name in ("namespace", "name", "uid")},
        },
        "reason": note.reason,
        "message": note.message[:MOST_CHARACTERS],
        "type": "Warning" if note.is_warning else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": f"{moment[:19]}Z",
        "lastTimestamp": f"{moment[:19]}Z",
        "count": 1,
    }
