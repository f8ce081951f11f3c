"""State, events and actions of the job's controllers: the types of the pure machine in `controller`."""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from elastic_infra.local.faults import Fault

STORE: Final = "store"
"""The name of the rendezvous store among the pods."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The manifests' rules about restarts and the end of pods.

    Attributes:
        workload: the object's kind.
        restart_policy: restart policy of the PyTorchJob.
        backoff_limit: restarts (PyTorchJob) or failed pods (Job) that are too many; None for no limit.
        permanent: exit codes that fail a Job.
        grace_seconds: from SIGTERM to SIGKILL for a node.
        store_grace_seconds: the same time for the store.
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
    """The end of the job."""

    succeeded: bool
    reason: str
    interrupted: bool = False


@dataclasses.dataclass(frozen=True)
class State:
    """The controllers' state of the job.

    Attributes:
        nodes: how many nodes there should be.
        pods: the pods that exist or soon will.
        failures: failed pods of a Job.
        outcome: how the job ended, set once that is decided; pods may still be leaving.
        clear_at: when the remaining pods are told to end.
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
    """Time passed, without another event."""


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
    """The user wants the job to end: the first time all nodes are preempted, the second time they are killed."""


@dataclasses.dataclass(frozen=True)
class TimedOut:
    """The job's time limit has passed."""

    seconds: float


Event = Tick | Exited | Struck | Interrupted | TimedOut


@dataclasses.dataclass(frozen=True)
class Start:
    """Start a pod's container; a new pod has empty scratch volumes."""

    name: str
    is_new: bool


@dataclasses.dataclass(frozen=True)
class Terminate:
    """Send SIGTERM to a pod's first process."""

    name: str


@dataclasses.dataclass(frozen=True)
class Kill:
    """Send SIGKILL to every process of a pod."""

    name: str


@dataclasses.dataclass(frozen=True)
class Signal:
    """Send a signal to one worker."""

    name: str
    local_rank: int
    signal: Literal["SIGKILL", "SIGSTOP"]


@dataclasses.dataclass(frozen=True)
class Judged:
    """Record the meaning of an exit."""

    name: str
    code: int
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Missed:
    """Record a fault without a target."""

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
