"""The actions that the pure machine returns, which the agent carries out in the order given. Data types only.

Times are seconds of this node's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .records import Cause, Generation, Master, NodeRecord

Level = Literal["info", "warning", "error"]
Saves = Literal["nothing", "part", "whole"]
"""What workers that can be moved save to disk before they end: nothing, because another member goes on with the state;
their part of the state, because all workers end at one step; or one of the node's workers the whole state, because the
other nodes' workers may be gone."""


@dataclass(frozen=True)
class CompareAndSet:
    """Compare-and-set of the key ``gen``: at most one is outstanding a node; answered by ``CompareAndSetDone``."""

    generation: Generation | None
    """The new record; None deletes the key, because no live node saw this final record."""
    version: int
    """The version that the key must still have; 0 means that the key must not exist."""


@dataclass(frozen=True)
class Publish:
    """Set this node's own record, without a compare, since only its owner writes it."""

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
    """Start this node's workers. The field names are torch's for a worker group; the others are the launcher's own.

    Local worker ``i`` has rank ``first_rank + i``; role ranks equal ranks (one role, as torchrun's).
    """

    generation: int
    attempt: int
    """How many times workers of this job were started before, for any cause (ELASTIC_INFRA_ATTEMPT)."""
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
    kept: tuple[int, ...] = ()
    """Local ranks whose parked processes enter this generation; the other workers are started."""
    behind: bool = False
    """The kept workers take the state from others, whatever they hold: the job went on without them."""


@dataclass(frozen=True)
class PrepareWorkers:
    """Start this node's workers on standby; answered by a ``WorkerParked`` for each that is ready.

    Workers that are still to be moved into a generation get their real place then.
    """

    place: StartWorkers
    """The place that they would have if this node joined now."""
    kept: tuple[int, ...] = ()
    """Local ranks whose processes have parked and wait with the others, which are started."""


@dataclass(frozen=True)
class StopWorkers:
    """End this node's workers: a first signal to each worker alone, SIGKILL to its whole group at the deadline.

    Always answered by ``WorkersGone``. A second one for the same generation only moves the deadline earlier.
    """

    generation: int
    grace_seconds: float
    first: Literal["SIGTERM", "stacks", "SIGKILL", "none"]
    """``stacks``: dump every thread's stack, then SIGKILL at once (after a hang). ``none``: the workers were told
    by ``SetStopStep`` to stop by themselves, or have parked and are told so by a message; only the deadline holds."""
    reason: str
    saves: Saves = "nothing"


@dataclass(frozen=True)
class ParkWorkers:
    """Tell this node's workers that the generation is over: they leave their step and the group, and live on.

    Answered by a ``WorkerParked`` for each.
    """

    generation: int


@dataclass(frozen=True)
class KillWorkers:
    """End the workers that did not park in time, at once; answered by a ``WorkerExited`` for each."""

    generation: int
    local_ranks: tuple[int, ...]


@dataclass(frozen=True)
class ResumeWorkers:
    """Let workers that the dead-man timer had suspended go on: their generation stands."""

    generation: int


@dataclass(frozen=True)
class SetStopStep:
    """Write the stop step to the progress memory.

    While not ``agreed`` a worker that reaches ``step`` waits there; once agreed ``progress.step(step)`` returns
    True; a step of None withdraws the stop step.
    """

    generation: int
    step: int | None
    agreed: bool


@dataclass(frozen=True)
class Emit:
    """One event line; ``fields`` are the event's own fields, in order."""

    event: str
    fields: tuple[tuple[str, str | int | float | bool | None], ...] = ()


@dataclass(frozen=True)
class Tell:
    """One line for people in the log."""

    level: Level
    line: str


@dataclass(frozen=True)
class Exit:
    """No process of this node's workers runs any more: leave with this code. The last action of a machine."""

    code: int
    reason: str
    cause: Cause | None = None
    """The root cause for the termination message, where the job failed."""


Action = (
    CompareAndSet
    | Publish
    | PublishMaster
    | ChoosePort
    | StartWorkers
    | PrepareWorkers
    | StopWorkers
    | ParkWorkers
    | KillWorkers
    | ResumeWorkers
    | SetStopStep
    | Emit
    | Tell
    | Exit
)
