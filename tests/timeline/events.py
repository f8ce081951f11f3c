"""Builds records for tests, and reads the committed recordings."""

from __future__ import annotations

from pathlib import Path

from elastic_infra.timeline import files
from elastic_infra.timeline.history import History, history
from elastic_infra.timeline.records import Record

RECORDINGS = Path(__file__).parent / "recordings"


def record(at: float, event: str, node: str = "a", generation: int = 0, **fields: object) -> Record:
    """One event as a record."""
    return Record(at, event, node, generation, 0, fields)


def recording(name: str) -> tuple[Record, ...]:
    """The records of one recorded run (see ``record.py``)."""
    return files.read([RECORDINGS / name])[0]


def told(name: str) -> History:
    """The history of one recorded run."""
    return history(recording(name))


def start(at: float, node: str, generation: int, world: int, local: int = 1) -> list[Record]:
    """A node starts its workers."""
    size = {"first_rank": 0, "local_world_size": local, "world_size": world}
    workers = [record(at, "worker_started", node, generation, local_rank=rank) for rank in range(local)]
    return [record(at, "workers_started", node, generation, **size), *workers]


def steps(at: float, node: str, generation: int, first: int, highest: int, **kept: int) -> Record:
    """A node has made steps of one second each, and keeps what is named."""
    made = {"first": first, "lowest": highest, "highest": highest}
    return record(at, "progress", node, generation, **made, **kept, age_seconds=0.0)
