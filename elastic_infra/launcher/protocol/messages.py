"""What the agent's pure machine takes (events) and what it returns (actions).

Events are facts that the edges observed; actions are orders that the edges carry out, in the order given. Times are
seconds of this node's monotonic clock. This module holds shapes only, no decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .records import Cause, Generation, Master, NodeRecord

Presence = Literal["live", "silent", "closed"]
"""How the store sees a node: it beats; it has not beaten for ``silence_seconds``; its supervisor's connection is
closed, so the kernel has ended every process that held it."""


# ------------------------------------------------------------------ events


@dataclass(frozen=True)
class Tick:
    """Time passed and nothing else."""


@dataclass(frozen=True)
class Peer:
    """A node as the store knows it."""

    record: NodeRecord
    presence: Presence
    since: float
    """When the presence began, on this node's clock."""


@dataclass(frozen=True)
class StoreConnected:
    """A connection to the store stands, with everything that is in it."""

    epoch: str
    generation: Generation | None
    version: int
    """Of the key ``gen``; 0 where it does not exist."""
    peers: tuple[Peer, ...]
    master: Master | None


@dataclass(frozen=True)
class StoreLost:
    """The connection is gone or does not answer.

    ``fresh`` is True when the store's own end was seen closing and the last acknowledged beat had been sent less
    than ``silence_seconds`` before: then the store cannot have dropped this node without its knowledge.
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
    """A node's record was deleted: it left."""

    node: str


@dataclass(frozen=True)
class MasterSeen:
    """The group leader of a generation published where its workers meet."""

    master: Master


@dataclass(frozen=True)
class SwapDone:
    """The outstanding ``Swap`` was answered; the value it met comes as ``GenerationSeen`` before this."""

    swapped: bool


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
    """One line on the root cause where the worker left one (torch's error file)."""
    stopped: bool = False
    """True when ``progress.step`` had told this worker to stop before it exited."""


@dataclass(frozen=True)
class WorkersGone:
    """No process of this generation's local workers is left, and none holds an accelerator."""

    generation: int
    orphaned: bool = False
    """True when the dead-man timer killed them: the store had not answered for ``orphan_timeout``."""


@dataclass(frozen=True)
class StepsSeen:
    """What this node's workers reported: ``highest``/``lowest`` over the local ranks; None before the first."""

    generation: int
    lowest: int | None
    highest: int | None
    per_second: float = 0.0
    """Steps a second, for the choice of the stop step."""
    checkpoint: int | None = None
    """The newest step the script reported as saved."""
    first: int | None = None
    """The step this generation began with, where steps are counted one by one."""


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
    | SwapDone
    | Ready
    | PortChosen
    | WorkerExited
    | WorkersGone
    | StepsSeen
    | HangSeen
    | SignalSeen
)


# ----------------------------------------------------------------- actions


@dataclass(frozen=True)
class Swap:
    """Compare-and-set of ``gen``: at most one is outstanding a node; answered by ``SwapDone``."""

    generation: Generation | None
    """None deletes: a final state nobody lives to see is forgotten."""
    version: int
    """The version it must still have; 0 means it must not exist."""


@dataclass(frozen=True)
class Publish:
    """Set this node's own record (with no compare: only its owner writes it)."""

    record: NodeRecord


@dataclass(frozen=True)
class PublishMaster:
    """Set ``gen/<n>/master``; only the group leader of ``n`` does."""

    master: Master


@dataclass(frozen=True)
class ChoosePort:
    """Find a free port for the workers' own store of this generation; answered by ``PortChosen``."""

    generation: int


@dataclass(frozen=True)
class StartWorkers:
    """Start this node's workers. The names are torch's facts of a worker group, and what is ours.

    Local worker ``i`` has rank ``first_rank + i``; role ranks equal ranks (one role, as torchrun's).
    """

    generation: int
    attempt: int
    """How often workers of this job were started before, for any cause (ELASTIC_INFRA_ATTEMPT)."""
    restart_count: int
    """Failures charged to ``max_restarts`` so far (TORCHELASTIC_RESTART_COUNT)."""
    first_rank: int
    local_world_size: int
    world_size: int
    group_rank: int
    group_world_size: int
    master_address: str
    master_port: int
    cause: Cause | None
    """Why the generation before ended; None for the first."""


@dataclass(frozen=True)
class StopWorkers:
    """End this node's workers: a first signal to each worker alone, SIGKILL to its whole group at the deadline.

    Always answered by ``WorkersGone``. A second one for the same generation only moves the deadline earlier.
    """

    generation: int
    grace_seconds: float
    first: Literal["SIGTERM", "stacks", "SIGKILL", "none"]
    """``stacks``: dump every thread's stack, then SIGKILL at once (after a hang). ``none``: the workers were told
    by ``SetStopStep`` to stop by themselves; only the deadline holds."""
    reason: str


@dataclass(frozen=True)
class SetStopStep:
    """Write the stop step to the progress memory.

    While not ``agreed`` a worker that reaches ``step`` waits there; once agreed ``progress.step(step)`` returns
    True; None withdraws.
    """

    generation: int
    step: int | None
    agreed: bool


@dataclass(frozen=True)
class Emit:
    """One event line (design: events); ``fields`` are its own, in order."""

    event: str
    fields: tuple[tuple[str, str | int | float | bool | None], ...] = ()


@dataclass(frozen=True)
class Tell:
    """One line for people in the log."""

    level: Literal["info", "warning", "error"]
    line: str


@dataclass(frozen=True)
class Exit:
    """Nothing of this node runs any more: leave with this code. The last action of a machine."""

    code: int
    reason: str
    cause: Cause | None = None
    """The root cause for the termination message, where the job failed."""


Action = Swap | Publish | PublishMaster | ChoosePort | StartWorkers | StopWorkers | SetStopStep | Emit | Tell | Exit
