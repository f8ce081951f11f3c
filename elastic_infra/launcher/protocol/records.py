"""The records that nodes write into the store; ``codec`` gives their JSON form. Data types only, no decisions.

Keys: ``gen`` holds one ``Generation`` (compare-and-set only), ``node/<uuid>`` one ``NodeRecord`` (written by its
owner), ``gen/<n>/master`` one ``Master``. The end of the job is a phase of ``gen`` and not a key of its own, so that
"the job ends" and "the job goes on without that node" are decided by one compare-and-set and can never both happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["running", "proposed", "draining", "broken", "final"]
"""``running``: committed. ``proposed``: a stop step is being agreed.
``draining``: it is agreed (or SIGTERM is used), members stop. ``broken``: a failure, members stop at once.
``final``: the job is over."""

NodeState = Literal["warming", "ready", "member", "draining", "parked", "stopped", "finished", "left"]
"""``warming``: not able to start workers yet. ``ready``: able, and of no generation. ``member``: of ``generation``,
its workers run or start. ``draining``: they are being stopped. ``parked``: they live, have left the generation's group
and train no more. ``stopped``: none of them is left. ``finished``: all exited 0 by themselves. ``left``: it will not
come back."""

Mode = Literal["move", "restart"]
"""How a change of members goes: workers that live keep their processes, or all are started anew."""

CauseKind = Literal[
    "scale_up", "leaving", "node_lost", "worker_failed", "hang", "orphaned", "succeeded", "no_progress", "startup"
]


@dataclass(frozen=True)
class Cause:
    """Why a generation ended: the first sign that was seen."""

    kind: CauseKind
    node: str
    """The readable name of the node that the cause is about."""
    uuid: str = ""
    rank: int | None = None
    exit_code: int | None = None
    step: int | None = None
    message: str = ""
    startup: bool = False
    """The worker failed by itself (no signal) within the start-up window."""


@dataclass(frozen=True)
class Member:
    """A node's place in a generation; the order of members is the order of ranks."""

    uuid: str
    name: str
    local_world_size: int


@dataclass(frozen=True)
class Budget:
    """The failures that the job has spent; global, because ``gen`` holds them."""

    restarts: int = 0
    """Failures charged to ``max_restarts`` since the last progress."""
    charged: int = 0
    """Failures charged in all: TORCHELASTIC_RESTART_COUNT."""
    startup_failures: int = 0
    failed_step: int | None = None
    same_step_failures: int = 0
    culprit: str = ""
    """The node whose worker failed last."""
    culprit_failures: int = 0
    """Number of failures in a row of that node."""


@dataclass(frozen=True)
class NodeFaults:
    """Generations that launchers of one name ended by their own faults."""

    name: str
    times: tuple[int, ...]
    """When each ended, Unix seconds by the store's clock, without those that are too long ago to count."""


@dataclass(frozen=True)
class Generation:
    """The value of the key ``gen``: the only record on which nodes must agree."""

    number: int
    phase: Phase = "running"
    members: tuple[Member, ...] = ()
    stop_step: int | None = None
    """The stop step; None where no steps are reported."""
    cause: Cause | None = None
    incarnation: str = ""
    """The store's incarnation in which ``number`` was committed: with it the number names one generation."""
    revision: int = 0
    """Counts every change over all incarnations: after a store was reborn the highest is the newest."""
    budget: Budget = Budget()
    attempt: int = 0
    finishing: bool = False
    """A node has finished: newcomers are not admitted any more."""
    finished: tuple[str, ...] = ()
    """Members that have finished this generation and answer no more: their own records are kept for minutes only."""
    charged: bool = False
    """Whether the failure that led to this generation was charged."""
    confirmed: bool = False
    """Whether a node that cannot have missed a later record brought this one into a reborn store."""
    evicted: str = ""
    """The node that was left out of this generation because it keeps failing alone."""
    node_faults: tuple[NodeFaults, ...] = ()
    """The counts by name, without nodes that have no faults."""
    trained: tuple[int, ...] = ()
    """World sizes with which an earlier generation has made a step."""
    refused: tuple[int, ...] = ()
    """World sizes with which the script does not start, although it has trained with another."""
    startup_seconds: int | None = None
    """The longest time from the order to start to a first step in any generation before; None where none is known."""
    mode: Mode = "restart"
    """How the members entered this generation."""
    next_mode: Mode = "restart"
    """How the members are to leave this generation, once it is proposed, draining or broken; the next generation's
    ``mode`` is ``restart`` where no worker has parked."""
    stepped_back: tuple[str, ...] = ()
    """Members of the last generation that live and have no place in this one, since the others do not wait until their
    workers are started: they come back as newcomers, with those of their workers that have parked."""
    failed_moves: int = 0
    """Number of moves in a row without a step, up to the one that led to this generation."""
    exit_code: int | None = None
    """The job's exit code, in phase ``final``."""
    ended_at: int = 0
    """Unix seconds of phase ``final``, by the store's clock, so that the record's age does not depend on two nodes'
    clocks."""
    ended_by: str = ""
    """The uuid of the node that made this record, in phase ``final``: it alone tells others of the end."""

    @property
    def identity(self) -> tuple[int, str]:
        """The identity of one committed generation, over all incarnations of the store."""
        return (self.number, self.incarnation)

    @property
    def order(self) -> tuple[int, int]:
        """The sort key: the higher of two records is the newer one, over all incarnations of the store."""
        return (self.number, self.revision)


@dataclass(frozen=True)
class NodeRecord:
    """The value of the key ``node/<uuid>``: the node's own report of its state."""

    uuid: str
    name: str
    state: NodeState
    local_world_size: int = 1
    replica_index: int | None = None
    address: str = ""
    generation: int = 0
    """The number of the generation to which ``state`` refers."""
    incarnation: str = ""
    """The incarnation of that generation: with ``generation`` its identity."""
    accepted: int | None = None
    """The stop step at which the node promises to stop: its workers were all below it, and wait there until it is
    agreed."""
    orphaned: bool = False
    """Whether the node's workers were ended because the store had not answered for ``orphan_timeout``."""
    leaving: bool = False
    """Whether the node got SIGTERM: it stops with the others and does not come back."""
    joined: int = 0
    """Unix milliseconds of the node's start, which order newcomers without replica index."""
    startup_seconds: int | None = None
    """How long the node's workers of ``generation`` took to their first step; None before that step."""
    hung_at: tuple[int, ...] = ()
    """(lowest step, its local rank) where the generation hangs and all workers of the node report steps; empty
    otherwise."""
    failure: str = ""
    """Exit code and exception of the node's first worker that failed before any step: equal texts mean one cause."""
    can_move: bool = False
    """Whether the node's workers of ``generation`` have said that they can be moved to the next one."""
    behind: bool = False
    """Whether these workers have yet to get the state, which other members have."""
    incomplete: bool = False
    """Whether other workers of the node have ended while these parked, so that new ones are to be started first."""

    @property
    def identity(self) -> tuple[int, str]:
        """The identity of the generation to which ``state`` refers."""
        return (self.generation, self.incarnation)


@dataclass(frozen=True)
class Master:
    """Where the workers of one generation meet: a fresh port of the group leader's node."""

    generation: int
    incarnation: str
    address: str
    port: int

    @property
    def identity(self) -> tuple[int, str]:
        """The identity of the generation to which the meeting place belongs."""
        return (self.generation, self.incarnation)


def order_of(generation: Generation | None) -> tuple[int, int]:
    """``Generation.order``; for None an order before that of every record."""
    return generation.order if generation else (-1, -1)
