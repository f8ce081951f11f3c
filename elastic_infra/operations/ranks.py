"""Which pod runs a rank."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elastic_infra.operations.objects import RefusedError

_TEED = re.compile(r"\[[A-Za-z_]+(\d+)\]:")
"""The prefix of a teed line where no template is given: role and local rank."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rank is.

    Attributes:
        first, last: the ranks of that pod.
        is_known: whether a launcher said so; else the pods' order says it, which is wrong while a node waits.
    """

    pod: str
    local_rank: int
    first: int
    last: int
    is_known: bool


def place(rank: int, pods: Sequence[str], snapshots: Mapping[str, Mapping[str, Any]], workers_per_node: int) -> Place:
    """The pod of a rank.

    Args:
        pods: names of the pods of nodes, in the order of their indices.
        snapshots: what the status ports of pods say, by pod.

    Raises:
        RefusedError: the group has no such rank, or its pod is gone.
    """
    members, each = _members(snapshots.values()), workers_per_node
    nodes = members or pods
    if not 0 <= rank < len(nodes) * each:
        message = (
            f"There is no rank {rank}: the job's ranks are 0 to {len(nodes) * each - 1} now."
            if nodes
            else f"There is no rank {rank}: the job has no pods now. `elastic-infra status` says why."
        )
        raise RefusedError(message)
    pod = nodes[rank // each]
    if pod not in pods:
        message = f"Rank {rank} is on {pod}, which is gone. Ask again when the nodes have met without it."
        raise RefusedError(message)
    return Place(pod, rank % each, rank - rank % each, rank - rank % each + each - 1, bool(members))


def newest(snapshots: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The snapshot of the newest generation; empty without any."""
    return max(snapshots, key=lambda seen: (_number(seen.get("generation")), _number(seen.get("attempt"))), default={})


def is_of(line: str, local_rank: int) -> bool:
    """Whether a line of a pod's log may be of one worker: a teed line names its own, other lines none."""
    told = _TEED.match(line)
    return told is None or int(told[1]) == local_rank


def _members(snapshots: Iterable[Mapping[str, Any]]) -> list[str]:
    nodes = newest(snapshots).get("nodes")
    return [str(each) for each in nodes] if isinstance(nodes, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1
