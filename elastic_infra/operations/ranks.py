"""Which node runs a rank."""

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
        node: its name, as the launchers know it.
        first, last: the ranks of that node.
        is_known: whether a launcher said so; else the order of the nodes says it, which is wrong while a node waits.
    """

    node: str
    local_rank: int
    first: int
    last: int
    is_known: bool


def place(rank: int, nodes: Sequence[str], snapshots: Mapping[str, Mapping[str, Any]], workers_per_node: int) -> Place:
    """The node of a rank.

    Args:
        nodes: names of the nodes that have a pod, in the order of their indices.
        snapshots: what the status ports of pods say, by pod.

    Raises:
        RefusedError: the group has no such rank, or its node's pod is gone.
    """
    members, each = _members(snapshots.values()), workers_per_node
    known = members or nodes
    if not 0 <= rank < len(known) * each:
        message = (
            f"There is no rank {rank}: the job's ranks are 0 to {len(known) * each - 1} now."
            if known
            else f"There is no rank {rank}: the job has no pods now. `elastic-infra status` says why."
        )
        raise RefusedError(message)
    node = known[rank // each]
    if node not in nodes:
        message = f"Rank {rank} is on {node}, which is gone. Ask again when the nodes have met without it."
        raise RefusedError(message)
    return Place(node, rank % each, rank - rank % each, rank - rank % each + each - 1, bool(members))


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
