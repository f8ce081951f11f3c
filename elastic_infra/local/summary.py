"""What is said before and after a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from elastic_infra.local.job import memory_bytes
from elastic_infra.local.plan import format_plan
from elastic_infra.local.state import Outcome
from elastic_infra.local.tail import Record
from elastic_infra.local.workspace import Workspace

if TYPE_CHECKING:
    from elastic_infra.local.start import Prepared


def opening(prepared: Prepared, seed: int | None) -> Iterator[str]:
    """What is about to run, and how near it comes to a cluster."""
    job, around = prepared.job, prepared.around
    shape, memory = job.shape, memory_bytes(job.node)
    limit = "memory not limited" if memory is None else f"{memory / 2**30:.3g} GiB a node, {around.limits.describe()}"
    shm = "a /dev/shm of its own" if around.owns_shared_memory else "this machine's /dev/shm"
    yield f"{job.name}: {shape.nodes} of {shape.min_nodes} to {shape.max_nodes} nodes, {shape.workers} workers each"
    yield f"  a node: {limit}; {shm}"
    yield f"  work folder: {prepared.workspace.folder}"
    if prepared.plan:
        yield f"  faults{'' if seed is None else f' of seed {seed}'}: {format_plan(prepared.plan)}"


def summary(outcome: Outcome, records: Sequence[Record], workspace: Workspace, seconds: float) -> Iterator[str]:
    """How it went."""
    result = "succeeded" if outcome.succeeded else f"failed: {outcome.reason}"
    yield f"The job {result} after {seconds:.1f} s."
    generations = {record["generation"] for record in records if record["event"] == "workers_started"}
    yield f"  generations: {len(generations)}; faults: {sum(record['event'] == 'fault' for record in records)}"
    yield f"  logs: {workspace.logs}"
    yield f"  events: {workspace.events}"
    yield f"  picture: elastic-infra timeline {workspace.events}"
