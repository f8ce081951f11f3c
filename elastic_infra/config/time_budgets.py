"""Time budgets: the bounds that a config sets for start, failure and end, each with its formula. Pure."""

from __future__ import annotations

import dataclasses
from typing import Final

from elastic_infra.config.job import JobConfig
from elastic_infra.launcher.settings import LauncherSettings

NODE_LOST_SECONDS: Final = 60
"""How long a pod stays bound to a cluster node that is gone. Kubernetes' own 300 s would cost five minutes of
training."""

CLOSED_SECONDS: Final = 2
"""How long a generation waits for a member after its connection closed or a collective failed."""

SILENT_SECONDS: Final = 5
"""The same for a node that only fell silent."""

AUTO_HANG_SECONDS: Final = 600
"""Least threshold of `hang_timeout_seconds: auto`: first steps compile and load data."""

# https://github.com/pytorch/pytorch/blob/v2.9.0/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp and Types.hpp
NCCL_TIMEOUT_SECONDS: Final = 600
GLOO_TIMEOUT_SECONDS: Final = 1800


@dataclasses.dataclass(frozen=True)
class Budget:
    """A bound on the time that one part of a job's life may take.

    Attributes:
        name: a stable name for programs.
        meaning: the part of the job's life that is bounded.
        seconds: the bound; None means that there is none.
        formula: how the bound follows from the config.
        fields: paths of the fields that set it; none when it is fixed.
    """

    name: str
    meaning: str
    seconds: float | None
    formula: str
    fields: tuple[str, ...] = ()


def budgets(config: JobConfig) -> tuple[Budget, ...]:
    """Every budget of a job, in the order of the job's life."""
    several = () if config.is_single_pod else (_start(config), _join(config))
    nodes = () if config.is_single_pod else (_lost_node(), _replaced_node(), _lost_store())
    return (
        *several,
        _crash(),
        _drain(config),
        _hang(config),
        _silent_hang(config),
        *nodes,
        _stop(config),
        _worst(config),
    )


def collective_seconds(config: JobConfig) -> int:
    """How long a collective may take: the config's value, or the default of the backend that torch picks."""
    default = NCCL_TIMEOUT_SECONDS if config.resources.gpu else GLOO_TIMEOUT_SECONDS
    return config.runtime.nccl_collective_timeout_sec or default


def _start(config: JobConfig) -> Budget:
    wait, last_call = config.runtime.startup_wait_seconds, config.elastic.rdzv_configs.last_call_timeout
    return Budget(
        "start",
        "wait for late nodes once the minimum is there",
        max(wait, last_call),
        "max(startup_wait_seconds, last_call_timeout); none of it when initial_nodes are there",
        ("runtime.startup_wait_seconds", "elastic.rdzv_configs.last_call_timeout", "elastic.initial_nodes"),
    )


def _join(config: JobConfig) -> Budget:
    return Budget(
        "join",
        "a node without its minimum of peers, or without the store, leaves with 200 and is retried",
        config.elastic.rdzv_configs.join_timeout,
        "join_timeout",
        ("elastic.rdzv_configs.join_timeout",),
    )


def _crash() -> Budget:
    return Budget("crash", "a worker's crash is seen", 0, "at once: its exit is an event, nothing polls")


def _drain(config: JobConfig) -> Budget:
    runtime = config.runtime
    unset = runtime.failure_grace_seconds is None
    name = "shutdown_grace_seconds" if unset else "failure_grace_seconds"
    return Budget(
        "drain",
        "after a failure, the other workers are stopped",
        runtime.shutdown_grace_seconds if unset else runtime.failure_grace_seconds,
        f"{name}, at most; less when they end by themselves",
        (f"runtime.{name}",),
    )


def _hang(config: JobConfig) -> Budget:
    given = config.runtime.hang_timeout_seconds
    seconds = {"auto": AUTO_HANG_SECONDS, "off": None}
    formula = {"auto": f"max(5 x p99 step interval, {AUTO_HANG_SECONDS})", "off": "never"}
    return Budget(
        "hang",
        "a hang is seen, when the script reports its steps",
        seconds[given] if given in seconds else int(given),
        formula.get(given, "hang_timeout_seconds"),
        ("runtime.hang_timeout_seconds",),
    )


def _silent_hang(config: JobConfig) -> Budget:
    collective, heartbeat = collective_seconds(config), config.runtime.nccl_heartbeat_timeout_sec
    return Budget(
        "silent_hang",
        "a hang is seen, when the script reports nothing",
        collective + heartbeat,
        f"collective ({collective}) + heartbeat ({heartbeat})",
        ("runtime.nccl_collective_timeout_sec", "runtime.nccl_heartbeat_timeout_sec"),
    )


def _lost_node() -> Budget:
    return Budget(
        "lost_node",
        "a lost node is seen, and the others go on without it",
        SILENT_SECONDS,
        f"{CLOSED_SECONDS} when its connection closes, {SILENT_SECONDS} when it falls silent",
    )


def _replaced_node() -> Budget:
    return Budget(
        "replaced_node",
        "its pod is replaced, once Kubernetes has found the cluster node gone (40 to 50 s)",
        NODE_LOST_SECONDS,
        f"{NODE_LOST_SECONDS}, the toleration of the pods",
    )


def _lost_store() -> Budget:
    seconds = LauncherSettings().orphan_timeout_seconds
    return Budget(
        "lost_store", "workers train on without the rendezvous store", seconds, f"{seconds:g}, then they stop"
    )


def _stop(config: JobConfig) -> Budget:
    grace, pod = config.runtime.shutdown_grace_seconds, config.disruption.termination_grace_period_seconds
    return Budget(
        "stop",
        "time to save after SIGTERM (preemption, scale-down, deletion)",
        grace,
        f"shutdown_grace_seconds ({grace}), within the pod's {pod}",
        ("runtime.shutdown_grace_seconds", "disruption.termination_grace_period_seconds"),
    )


def _worst(config: JobConfig) -> Budget:
    collective, heartbeat = collective_seconds(config), config.runtime.nccl_heartbeat_timeout_sec
    restarts = config.elastic.max_restarts
    return Budget(
        "worst_case",
        "a job that always hangs, and reports nothing, has failed",
        (restarts + 1) * (collective + heartbeat),
        f"(max_restarts ({restarts}) + 1) * (collective ({collective}) + heartbeat ({heartbeat}))",
        ("elastic.max_restarts", "runtime.nccl_collective_timeout_sec", "runtime.nccl_heartbeat_timeout_sec"),
    )
