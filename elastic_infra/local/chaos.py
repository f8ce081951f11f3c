"""Random faults that can be replayed: a seed gives a plan, the plan is printed. Pure.

A correct launcher survives every plan: each fault waits until training is back at its full size, and the failures that
are charged to a budget stay below it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from elastic_infra.local.faults import (
    Fault,
    KillNode,
    KillWorker,
    LoseRendezvous,
    PreemptNode,
    Scale,
    Shape,
    StopWorker,
)
from elastic_infra.local.plan import Entry, Plan

FAULTS: Final = 5
"""Number of faults in a plan: enough for faults shortly after another; with each recovery a small job ends within
minutes."""
LONGEST_PAUSE_SECONDS: Final = 4


def chaos(seed: int, shape: Shape) -> Plan:
    """The plan for a seed: the same for the same seed and job, on every machine."""
    return tuple(_entries(random.Random(seed), shape))  # noqa: S311 - nothing secret is drawn


def _entries(rng: random.Random, shape: Shape) -> Iterator[Entry]:
    nodes, budget = shape.nodes, shape.max_restarts - 1
    for _ in range(FAULTS):
        faults = list(_possible(rng, shape, nodes, charged=budget > 0))
        fault = faults[rng.randrange(len(faults))]
        budget -= isinstance(fault, KillWorker | StopWorker)
        nodes = fault.nodes if isinstance(fault, Scale) else nodes
        yield Entry(rng.randrange(2, 2 * LONGEST_PAUSE_SECONDS + 1) / 2, fault, after_recovery=True)


def _possible(rng: random.Random, shape: Shape, nodes: int, *, charged: bool) -> Iterator[Fault]:
    """One fault of each kind that is possible for the job now."""
    node, worker = rng.randrange(nodes), rng.randrange(shape.workers)
    yield KillNode(node)
    yield PreemptNode(node)
    if charged:
        yield KillWorker(node, worker)
        yield StopWorker(node, worker)
    if shape.has_store:
        yield LoseRendezvous()
    if sizes := [size for size in range(shape.min_nodes, shape.max_nodes + 1) if size != nodes]:
        yield Scale(sizes[rng.randrange(len(sizes))])
