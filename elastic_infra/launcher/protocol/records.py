"""What nodes write into the store, as frozen records; ``codec`` gives their JSON form. Shapes only, no decisions.

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
    """Why a generation ended: what was seen first."""

    kind: CauseKind
    node: str
    """The name, for people, of the node it is about."""
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
    """What the job has spent, global because it travels in ``gen``."""

    restarts: int = 0
    """Charged to ``max_restarts`` since the last progress."""
    charged: int = 0
    """Charged in all: TORCHELASTIC_RESTART_COUNT."""
    startup_failures: int = 0
    failed_step: int | None = None
    same_step_failures: int = 0
    culprit: str = ""
    """The node whose worker failed last."""
    culprit_failures: int = 0
    """How often in a row it was that node."""


@dataclass(frozen=True)
class NodeFaults:
    """How often launchers of one name ended generations by faults of their own, without long training in between."""

    name: str
    count: int


@dataclass(frozen=True)
class Generation:
    """The key ``gen``: the only thing nodes must agree on."""

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
    charged: bool = False
    """The failure that led to this generation was charged."""
    confirmed: bool = False
    """Brought into a reborn store by a node that cannot have missed a later one."""
    evicted: str = ""
    """The node that keeps failing alone and was left out of this generation for it."""
    node_faults: tuple[NodeFaults, ...] = ()
    """By name; a node without faults is not in it."""
    trained: tuple[int, ...] = ()
    """World sizes with which a generation before has made a step."""
    refused: tuple[int, ...] = ()
    """World sizes with which the script does not start, although it has trained with another."""
    startup_seconds: int | None = None
    """The longest time from the order to start to a first step in any generation before; None where none is known."""
    mode: Mode = "restart"
    """How its members came into it."""
    next_mode: Mode = "restart"
    """How they are to leave it, once it is proposed, draining or broken; the next one's ``mode`` may be lower."""
    failed_moves: int = 0
    """Moves in a row, up to the one that led here, that came to no step."""
    exit_code: int | None = None
    """Of the job, in phase ``final``."""
    ended_at: int = 0
    """Unix seconds of phase ``final``, by the store's clock: its age must not depend on two nodes' clocks."""

    @property
    def identity(self) -> tuple[int, str]:
        """Names one committed generation, also across two lives of the store."""
        return (self.number, self.incarnation)

    @property
    def order(self) -> tuple[int, int]:
        """The higher of two records is the newer one, over all lives of the store."""
        return (self.number, self.revision)


@dataclass(frozen=True)
class NodeRecord:
    """The key ``node/<uuid>``: what a node says of itself."""

    uuid: str
    name: str
    state: NodeState
    local_world_size: int = 1
    replica_index: int | None = None
    address: str = ""
    generation: int = 0
    """The generation that ``state`` speaks of."""
    incarnation: str = ""
    """With ``generation`` the identity of that generation."""
    accepted: int | None = None
    """The stop step it promises to stop at: its workers were all below and wait there until it is agreed."""
    orphaned: bool = False
    """Its workers were ended because the store had not answered it for ``orphan_timeout``."""
    leaving: bool = False
    """It got SIGTERM: it stops with the others and does not come back."""
    joined: int = 0
    """Unix milliseconds of its start: the order of newcomers without replica index."""
    startup_seconds: int | None = None
    """How long its workers of ``generation`` took to their first step; None before that step."""
    hung_at: tuple[int, ...] = ()
    """Where the generation hangs, and all its workers report steps: the lowest step, and the local rank at it."""
    failure: str = ""
    """Exit code and exception of the first of its workers that failed before any step: equal ones are one cause."""
    can_move: bool = False
    """Its workers of ``generation`` have said that they can be moved to the next one."""

    @property
    def identity(self) -> tuple[int, str]:
        """Of the generation that ``state`` speaks of."""
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
        """Of the generation it belongs to."""
        return (self.generation, self.incarnation)


def order_of(generation: Generation | None) -> tuple[int, int]:
    """``Generation.order``, where no record is older than any."""
    return generation.order if generation else (-1, -1)
