"""What Kubernetes Events say of the records on which nodes agree."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from elastic_infra.launcher.driver.events import Note, event, notes
from elastic_infra.launcher.protocol.records import Budget, Cause, Generation, NodeFaults

FAILED = Cause("worker_failed", "job-worker-1", "u1", rank=2, exit_code=1, message="ValueError: nan")
WORKLOAD = {"metadata": {"namespace": "research", "name": "train", "uid": "0-1-2"}}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            Generation(3, "broken", cause=FAILED),
            [("WorkerFailed", "Generation 3 has ended, because a worker on job-worker-1 failed: ValueError: nan")],
        ),
        (
            Generation(4, cause=Cause("node_lost", "job-worker-2")),
            [("NodeLost", "Generation 3 has ended, because job-worker-2 was lost.")],
        ),
        (
            Generation(4, cause=dataclasses.replace(FAILED, node="w-1", kind="hang", message="Slow")),
            [
                (
                    "WorkersHang",
                    "Generation 3 has ended, because the workers hang, and one on w-1 is furthest behind: Slow",
                )
            ],
        ),
        (
            Generation(5, cause=dataclasses.replace(FAILED, message=""), evicted="u1"),
            [
                ("WorkerFailed", "Generation 4 has ended, because a worker on job-worker-1 failed."),
                ("NodeLeftOut", "job-worker-1 is left out: it keeps failing while the other nodes are healthy."),
            ],
        ),
        (
            Generation(9, node_faults=(NodeFaults("job-worker-1", (1,) * 6), NodeFaults("job-worker-2", (1,) * 5))),
            [("NodeRefused", "job-worker-1 is not taken any more: 6 generations ended by faults of its own.")],
        ),
        (
            Generation(3, "final", cause=FAILED, exit_code=1, budget=Budget(charged=4)),
            [("TrainingFailed", "The training has failed (exit code 1) after 4 restarts: ValueError: nan")],
        ),
        (
            Generation(3, "final", cause=Cause("succeeded", "job-worker-0"), exit_code=0),
            [("TrainingSucceeded", "The training has succeeded after 0 restarts.")],
        ),
    ],
    ids=["broken", "lost", "hang", "left out", "refused", "failed", "succeeded"],
)
def test_a_failure_and_the_end_are_told(record: Generation, told: list[tuple[str, str]]) -> None:
    """Reason and message; success alone is no warning."""
    found = list(notes(record))

    assert [(note.reason, note.message) for note in found] == told
    assert [note.is_warning for note in found] == [reason != "TrainingSucceeded" for reason, _ in told]


@pytest.mark.parametrize(
    "record",
    [
        Generation(1),
        Generation(2, cause=Cause("scale_up", "job-worker-3")),
        Generation(2, "draining", cause=Cause("leaving", "job-worker-3")),
        Generation(2, "broken", cause=Cause("hang", "job-worker-3")),
        Generation(6, cause=Cause("leaving", "job-worker-3", "u3"), evicted="u1"),
    ],
)
def test_what_goes_well_is_not_told(record: Generation) -> None:
    """A first start, a planned change, a hang whose culprit is not known yet, a node that was left out long ago."""
    assert list(notes(record)) == []


def test_a_failure_has_one_name_however_it_is_seen() -> None:
    """The record that it broke and the record after it make the same event, and another run makes another."""
    (seen,), (seen_later,) = notes(Generation(3, "broken", cause=FAILED)), notes(Generation(4, cause=FAILED))

    def name(note: Note, run: str = "train-1f", uid: str = "0-1-2") -> Any:
        return event(note, "Job", {"metadata": {**WORKLOAD["metadata"], "uid": uid}}, run, 0)["metadata"]["name"]

    assert name(seen) == name(seen_later)
    (next_one,) = notes(Generation(5, cause=FAILED))
    assert len({name(seen), name(next_one), name(seen, run="train-2f"), name(seen, uid="3-4-5")}) == 4


@pytest.mark.parametrize(
    ("kind", "version"),
    [("PyTorchJob", "kubeflow.org/v1"), ("Job", "batch/v1"), ("TrainJob", "trainer.kubeflow.org/v1alpha1")],
)
def test_an_event_is_about_the_job(kind: str, version: str) -> None:
    """`kubectl describe` finds it by the job's uid; a long message is cut."""
    made = event(Note("end", "TrainingFailed", "x" * 2000), kind, WORKLOAD, "train-1f", 86_400.5)

    assert made["metadata"]["namespace"] == "research"
    assert made["metadata"]["name"].startswith("train.")
    assert made["involvedObject"] == {"apiVersion": version, "kind": kind, **WORKLOAD["metadata"]}
    assert (made["reason"], made["message"], made["type"]) == ("TrainingFailed", "x" * 1024, "Warning")
    assert made["firstTimestamp"] == made["lastTimestamp"] == "1970-01-02T00:00:00Z"
