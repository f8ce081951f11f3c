"""The state of the training from the launchers' events: a apply_record over records. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from elastic_infra.timeline.records import Record

SILENT_SECONDS: Final = 30.0
"""A script that reports no steps counts as training this long after its workers were started: even on a busy machine
torch is imported by then. With reported steps this time is not used."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The state of the training. Times are those of reading, by the reader's clock.

    Attributes:
        generation: the number of the newest one.
        started_at: when its workers were started.
        world_size: workers in it.
        stepped_at: when a step of it was last reported.
        first_at: when the first step of all was reported.
        workers: process id of each worker, by node and local rank.
    """

    generation: int = 0
    started_at: float | None = None
    world_size: int = 0
    stepped_at: float | None = None
    first_at: float | None = None
    workers: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)


def apply_record(training: Training, record: Record, now: float) -> Training:
    """The training after one more record, read now."""
    match record.event:
        case "workers_started" if record.generation != training.generation:
            return replace(
                training,
                generation=record.generation,
                started_at=now,
                world_size=record.whole("world_size") or 0,
                stepped_at=None,
            )
        case "progress" if record.generation == training.generation:
            return replace(training, stepped_at=now, first_at=training.first_at or now)
        case "worker_started":
            place = (record.node, record.whole("local_rank") or 0)
            return replace(training, workers={**training.workers, place: record.whole("pid") or 0})
        case _:
            return training


def trains_since(training: Training, now: float) -> float | None:
    """Since when the job has trained; None before."""
    if training.first_at is not None:
        return training.first_at
    if training.started_at is not None and now - training.started_at >= SILENT_SECONDS:
        return training.started_at + SILENT_SECONDS
    return None


def is_training(training: Training, world_size: int, since: float, now: float) -> bool:
    """Whether so many workers train together, and have made a step after ``since``."""
    if training.started_at is None or training.world_size != world_size:
        return False
    if training.first_at is None:
        return now - max(since, training.started_at) >= SILENT_SECONDS
    return training.stepped_at is not None and training.stepped_at > since
