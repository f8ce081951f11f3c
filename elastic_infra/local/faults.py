"""The faults of a running job, and the grammar for them. Pure."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final


class FaultError(ValueError):
    """The words name no fault, or one that this job cannot have; the message gives the place and the known forms."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """Change the number of nodes, as an autoscaler or `kubectl scale` does."""

    nodes: int

    def __str__(self) -> str:
        return f"scale {self.nodes}"


@dataclasses.dataclass(frozen=True)
class KillNode:
    """Send SIGKILL to every process of a node, as if its machine were lost; the node comes back."""

    node: int

    def __str__(self) -> str:
        return f"kill node {self.node}"


@dataclasses.dataclass(frozen=True)
class PreemptNode:
    """Send SIGTERM to a node, and SIGKILL when the pod's grace has passed; the node comes back."""

    node: int

    def __str__(self) -> str:
        return f"preempt node {self.node}"


@dataclasses.dataclass(frozen=True)
class KillWorker:
    """Send SIGKILL to one worker."""

    node: int
    local_rank: int

    def __str__(self) -> str:
        return f"kill worker {self.node}.{self.local_rank}"


@dataclasses.dataclass(frozen=True)
class StopWorker:
    """Send SIGSTOP to one worker, which then hangs."""

    node: int
    local_rank: int

    def __str__(self) -> str:
        return f"stop worker {self.node}.{self.local_rank}"


@dataclasses.dataclass(frozen=True)
class LoseRendezvous:
    """Send SIGKILL to the rendezvous store, which comes back empty."""

    def __str__(self) -> str:
        return "lose rendezvous"


Fault = Scale | KillNode | PreemptNode | KillWorker | StopWorker | LoseRendezvous

KNOWN: Final = (
    "scale N",
    "kill node I",
    "preempt node I",
    "kill worker I.R",
    "stop worker I.R",
    "lose rendezvous",
)
"""The grammar: N nodes in all, I the index of a node, R the local rank of a worker on it."""

_NUMBER: Final = r"([0-9]{1,5})"
_GRAMMAR: Final[Mapping[str, Callable[..., Fault]]] = {
    rf"scale {_NUMBER}": Scale,
    rf"kill node {_NUMBER}": KillNode,
    rf"preempt node {_NUMBER}": PreemptNode,
    rf"kill worker {_NUMBER}\.{_NUMBER}": KillWorker,
    rf"stop worker {_NUMBER}\.{_NUMBER}": StopWorker,
    r"lose rendezvous": LoseRendezvous,
}


def parse_fault(text: str) -> Fault:
    """The fault that these words name; ``parse_fault(str(fault)) == fault``.

    Raises:
        FaultError: the words name no fault.
    """
    words = " ".join(text.split())
    for pattern, kind in _GRAMMAR.items():
        if match := re.fullmatch(pattern, words):
            return kind(*map(int, match.groups()))
    near = difflib.get_close_matches(words, KNOWN, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    message = f"unknown fault {words!r}.{hint} Known: {', '.join(KNOWN)}."
    raise FaultError(message)


@dataclasses.dataclass(frozen=True)
class Shape:
    """The parts of a job that a fault may hit.

    Attributes:
        nodes: how many nodes the job starts with.
        min_nodes: the fewest that train.
        max_nodes: the most nodes that the job may have.
        workers: workers on each node.
        has_store: whether the rendezvous store has its own pod.
        max_restarts: failures of the workers that the job survives.
    """

    nodes: int
    min_nodes: int
    max_nodes: int
    workers: int
    has_store: bool
    max_restarts: int = 3


def check(fault: Fault, shape: Shape, nodes: int) -> int:
    """Check that a job with this many nodes can have this fault; returns the number of nodes afterwards.

    Raises:
        FaultError: the job cannot have the fault; the message says why.
    """
    match fault:
        case Scale(wanted):
            return _check_scale(wanted, shape)
        case KillNode(node) | PreemptNode(node):
            _check_node(node, nodes)
        case KillWorker(node, rank) | StopWorker(node, rank):
            _check_node(node, nodes)
            if rank >= shape.workers:
                message = f"there is no worker {node}.{rank}: a node has {_count(shape.workers, 'worker')}, from .0 on."
                raise FaultError(message)
        case LoseRendezvous():
            if not shape.has_store:
                message = "this job has no rendezvous store of its own to lose (rendezvous.host is not `dedicated`)."
                raise FaultError(message)
    return nodes


def _check_scale(wanted: int, shape: Shape) -> int:
    if shape.min_nodes <= wanted <= shape.max_nodes:
        return wanted
    message = f"cannot scale to {wanted}: elastic.nnodes allows {shape.min_nodes} to {shape.max_nodes} nodes."
    raise FaultError(message)


def _check_node(node: int, nodes: int) -> None:
    if node >= nodes:
        message = f"there is no node {node}: the job then has {_count(nodes, 'node')}, from 0 on."
        raise FaultError(message)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
