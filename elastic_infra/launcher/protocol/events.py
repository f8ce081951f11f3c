"""The events that the pure machine takes: facts that the agent observed. Data types only, no decisions.

Times are seconds of this node's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .records import Generation, Master, NodeRecord

Presence = Literal["live", "silent", "disconnected", "ended"]
"""How the store sees a node. ``live``: the node beats. ``silent``: no beat has come for ``silence_seconds``.
``disconnected``: the connection ended, by a crash or by a device on the way (a proxy, a firewall), so that the node may
still run. ``ended``: its supervisor said farewell, having reaped the last worker."""


@dataclass(frozen=True)
class Tick:
    """Time passed, without another event."""


@dataclass(frozen=True)
class Peer:
    """A node as the store knows it."""

    record: NodeRecord
    presence: Presence
    since: float
    """When the presence began, on this node's clock; for a disconnected node that was silent before, when the silence
    began."""
    arrived: int = 0
    """The store's count of arrivals and disconnections at the node's first arrival, so that no clocks are compared."""
    departed: int = 0
    """The same count when its connection last ended; 0 before that."""


@dataclass(frozen=True)
class StoreConnected:
    """A connection to the store stands; holds a snapshot of the store's content."""

    incarnation: str
    generation: Generation | None
    version: int
    """Of the key ``gen``; 0 where it does not exist."""
    peers: tuple[Peer, ...]
    master: Master | None
    unix_time: float = 0.0
    """The store's clock at this moment: Unix seconds."""


@dataclass(frozen=True)
class StoreLost:
    """The connection is gone or does not answer.

    ``fresh`` is True when the store's own end was seen closing and the last acknowledged beat had been sent less
    than ``silence_seconds`` before: then the store cannot have dropped this node without the node's knowledge.
    """

    fresh: bool


@dataclass(frozen=True)
class GenerationSeen:
    """The key ``gen`` has this value at this version."""

    generation: Generation | None
    version: int


@dataclass(frozen=True)
class PeerSeen:
    """A node's record or presence changed."""

    peer: Peer


@dataclass(frozen=True)
class PeerForgotten:
    """A node's record was deleted, because the node left."""

    node: str


@dataclass(frozen=True)
class MasterSeen:
    """The group leader of a generation published where its workers meet."""

    master: Master


@dataclass(frozen=True)
class CompareAndSetDone:
    """The outstanding ``CompareAndSet`` was answered; a ``GenerationSeen`` with the store's value comes before."""

    succeeded: bool


@dataclass(frozen=True)
class Ready:
    """This node can start workers at once (script readable, store reachable, supervisor armed)."""


@dataclass(frozen=True)
class PortChosen:
    """The answer to ``ChoosePort``."""

    generation: int
    port: int


@dataclass(frozen=True)
class WorkerExited:
    """One worker of this node ended; ``exit_code`` is negative for a signal, as in ``subprocess``."""

    generation: int
    local_rank: int
    exit_code: int
    message: str = ""
    """One line on the root cause, from torch's error file; empty where the worker left none."""
    exception: str = ""
    """The name of the exception that ended the worker; empty where the worker left none."""
    stopped: bool = False
    """True when ``progress.step`` had told this worker to stop before it exited."""


@dataclass(frozen=True)
class WorkersSuspended:
    """The dead-man timer suspended the workers, which are killed within seconds unless they are resumed."""

    generation: int


@dataclass(frozen=True)
class WorkersGone:
    """No process of this generation's local workers is left, and none holds an accelerator."""

    generation: int
    orphaned: bool = False
    """True when the dead-man timer killed them: the store had not answered for ``orphan_timeout``."""


@dataclass(frozen=True)
class WorkersIn:
    """All workers of this node are in the generation's process group; ``can_move``: they can enter the next one."""

    generation: int
    can_move: bool


@dataclass(frozen=True)
class WorkerParked:
    """One worker of this node has left the generation's process group, lives, and trains no more."""

    generation: int
    local_rank: int


@dataclass(frozen=True)
class WorkerStuck:
    """One worker of this node was told to park, and nothing frees it from a collective: waiting for it is in vain."""

    generation: int
    local_rank: int


@dataclass(frozen=True)
class StepBroke:
    """A collective of one worker failed; the worker lives, and waits for the agent's order."""

    generation: int
    local_rank: int
    message: str


@dataclass(frozen=True)
class StepsSeen:
    """What this node's workers reported: ``highest``/``lowest`` over the local ranks; None before the first."""

    generation: int
    lowest: int | None
    highest: int | None
    per_second: float = 0.0
    """Steps a second, from which the stop step is chosen; 0 where it is not known, or no step has come for long."""
    step_seconds: float = 0.0
    """What a step takes at most, all but one in a hundred, in seconds; 0 where it is not known."""
    checkpoint: int | None = None
    """The newest step the script reported as saved."""
    first: int | None = None
    """The step with which this generation began, where the script reports every step."""
    stepped_at: float | None = None
    """When a worker made its first step, reported or seen at torch's optimizer; None before that step."""
    failing: bool = False
    """An exception has left a worker's script; the worker may take seconds more to end."""
    slowest: int | None = None
    """The local rank that reported ``lowest``."""


@dataclass(frozen=True)
class HangSeen:
    """A verdict of the hang rules; SIGTERM is not tried after it (a blocked collective runs no handler)."""

    generation: int
    local_rank: int
    message: str


@dataclass(frozen=True)
class SignalSeen:
    """The supervisor was told to end (SIGTERM, SIGINT, SIGHUP, SIGQUIT, ...)."""

    signal: int


Event = (
    Tick
    | StoreConnected
    | StoreLost
    | GenerationSeen
    | PeerSeen
    | PeerForgotten
    | MasterSeen
    | CompareAndSetDone
    | Ready
    | PortChosen
    | WorkerExited
    | WorkersSuspended
    | WorkersGone
    | WorkersIn
    | WorkerParked
    | WorkerStuck
    | StepBroke
    | StepsSeen
    | HangSeen
    | SignalSeen
)
