"""The lines before and after a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from elastic_infra.local.job import left_out, memory_bytes
from elastic_infra.local.plan import format_plan
from elastic_infra.local.state import Outcome
from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.history import history
from elastic_infra.timeline.records import Record
from elastic_infra.timeline.text import print_text

if TYPE_CHECKING:
    from elastic_infra.local.start import Prepared

WIDTH = 100
"""Columns of the output where it is no terminal."""


def opening(prepared: Prepared, seed: int | None) -> Iterator[str]:
    """The first lines of a run: the job, and how this machine differs from a cluster."""
    job, environment = prepared.job, prepared.pod_environment
    shape, memory = job.shape, memory_bytes(job.node)
    held = environment.cgroups.describe()
    limit = "memory not limited" if memory is None else f"{memory / 2**30:.3g} GiB a node, {held}"
    shm = "its own /dev/shm" if environment.owns_shared_memory else "this machine's /dev/shm"
    workers = "1 worker" if shape.workers == 1 else f"{shape.workers} workers"
    yield f"{job.name}: {shape.nodes} of {shape.min_nodes} to {shape.max_nodes} nodes, {workers} each"
    yield f"each node: {limit}; {shm}"
    yield f"work folder: {prepared.workspace.folder}"
    if missing := ", ".join(left_out(job.node)):
        yield f"left out here: {missing}"
    if prepared.plan:
        source = "faults" if seed is None else f"faults of seed {seed}"
        yield f"{source}: {format_plan(prepared.plan)}"


def result(outcome: Outcome, seconds: float) -> str:
    """The outcome, in one line."""
    return f"The job {'succeeded' if outcome.succeeded else f'failed: {outcome.reason}'} after {seconds:.1f} s."


def show(records: Sequence[Record]) -> None:
    """Print the picture and the figures on stderr."""
    from rich.console import Console

    known = history(records)
    print_text(known, figures(known), Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH))


def closing(prepared: Prepared) -> Iterator[str]:
    """The last lines of a run: the paths of events, logs and picture."""
    work = prepared.workspace
    yield f"logs: {work.logs}"
    yield f"events: {work.events}"
    yield f"picture: elastic-infra timeline {shlex.quote(str(work.events))}"
