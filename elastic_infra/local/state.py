"""What the job's controllers know, hear and order: the types of the pure machine in `machine`."""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from elastic_infra.local.faults import Fault

STORE: Final = "store"
"""The name of the rendezvous store among the pods."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the manifests say about life and end.

    Attributes:
        workload: the object's kind.
        restart_policy: of the PyTorchJob.
        backoff_limit: restarts (PyTorchJob) or failed pods (Job) that are too many; None for no limit.
        permanent: exit codes that fail a Job.
        grace_seconds: from SIGTERM to SIGKILL for a node.
        store_grace_seconds: the same for the store.
    """

    workload: Literal["PyTorchJob", "Job"]
    restart_policy: Literal["OnFailure", "ExitCode", "Never"]
    backoff_limit: int | None
    permanent: frozenset[int]
    grace_seconds: float
    store_grace_seconds: float


@dataclasses.dataclass(frozen=True)
class Pod:
    """One pod, a node or the store.

    Attributes:
        phase: `waiting` to start, `running`, `leaving` (deleted, not yet gone), `done` (its container succeeded).
        at: when a waiting pod starts, when a leaving one is killed.
        restarts: how often its container was started again in place.
        is_new: whether a waiting pod is a new one, which has lost what its predecessor wrote.
    """

    name: str
    phase: Literal["waiting", "running", "leaving", "done"] = "waiting"
    at: float = 0.0
    restarts: int = 0
    is_new: bool = True


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How the job ended."""

    succeeded: bool
    reason: str
    interrupted: bool = False


@dataclasses.dataclass(frozen=True)
class State:
    """The job as its controllers know it.

    Attributes:
        nodes: how many there should be.
        pods: those there are, or soon will be.
        failures: failed pods of a Job.
        outcome: set once it is decided; pods may still be leaving.
        clear_at: when what is left is told to end.
    """

    rules: Rules
    nodes: int
    pods: tuple[Pod, ...]
    failures: int = 0
    outcome: Outcome | None = None
    clear_at: float | None = None


Verdict = Literal["retry", "permanent", "done"]


@dataclasses.dataclass(frozen=True)
class Tick:
    """Time passed; nothing else happened."""


@dataclasses.dataclass(frozen=True)
class Exited:
    """A pod's first process has ended, with a code as a shell gives it (128 + signal)."""

    name: str
    code: int


@dataclasses.dataclass(frozen=True)
class Struck:
    """A fault is due."""

    fault: Fault


@dataclasses.dataclass(frozen=True)
class Interrupted:
    """The user wants it to end: once is a preemption of all nodes, twice is now."""


@dataclasses.dataclass(frozen=True)
class TimedOut:
    """The job's time is up."""

    seconds: float


Event = Tick | Exited | Struck | Interrupted | TimedOut


@dataclasses.dataclass(frozen=True)
class Start:
    """Start a pod's container; a new pod has empty scratch volumes."""

    name: str
    is_new: bool


@dataclasses.dataclass(frozen=True)
class Terminate:
    """SIGTERM to a pod's first process."""

    name: str


@dataclasses.dataclass(frozen=True)
class Kill:
    """SIGKILL to every process of a pod."""

    name: str


@dataclasses.dataclass(frozen=True)
class Signal:
    """A signal to one worker."""

    name: str
    local_rank: int
    signal: Literal["SIGKILL", "SIGSTOP"]


@dataclasses.dataclass(frozen=True)
class Judged:
    """What an exit means; for the record."""

    name: str
    code: int
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Missed:
    """A fault that found nothing to hit; for the record."""

    fault: Fault
    reason: str


Action = Start | Terminate | Kill | Signal | Judged | Missed
Step = tuple[State, tuple[Action, ...]]


def node(index: int) -> str:
    """The name of a node."""
    return f"node-{index}"


def index_of(pod: Pod) -> int:
    """The index of a node's pod."""
    return int(pod.name.removeprefix("node-"))
