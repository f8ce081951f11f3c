"""The figures that a reviewer cares about: size, cost, time budgets and how much may go wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.values import quantity
from elastic_infra.preview.model import Delta

Figure = Callable[[JobConfig], "str | int | None"]

NCCL_TIMEOUT_SECONDS: Final = 600
"""torch's collective timeout for NCCL when none is set: `torch.distributed.constants.default_pg_nccl_timeout`."""


def deltas(old: JobConfig | None, new: JobConfig | None) -> Mapping[str, Delta]:
    """Every figure that differs, by name; a job that does not exist has none."""
    pairs = {name: Delta(_of(figure, old), _of(figure, new)) for name, figure in FIGURES.items()}
    return {name: delta for name, delta in pairs.items() if delta.old != delta.new}


def _of(figure: Figure, config: JobConfig | None) -> str | int | None:
    return None if config is None else figure(config)


def _nodes(config: JobConfig) -> str:
    return config.elastic.nnodes


def most_nodes(config: JobConfig) -> int:
    """Nodes at most."""
    return config.elastic.max_nodes


def most_gpus(config: JobConfig) -> int:
    """GPUs of all nodes, at most."""
    return config.resources.gpu.count * config.elastic.max_nodes if config.resources.gpu else 0


def _memory_at_most(config: JobConfig) -> str | None:
    memory = config.resources.memory
    return None if memory is None else gibibytes(quantity(memory) * config.elastic.max_nodes)


def gibibytes(amount: Decimal) -> str:
    """A memory size in one unit, so that two can be compared by eye."""
    return f"{amount / 2**30:.6g}Gi"


def _shared_memory(config: JobConfig) -> str:
    shm = config.shared_memory
    if not shm.enabled:
        return "off"
    return shm.size or "up to the memory limit"


def _failure_detection(config: JobConfig) -> int:
    collective = config.runtime.nccl_collective_timeout_sec or NCCL_TIMEOUT_SECONDS
    return (config.elastic.max_restarts + 1) * (collective + config.runtime.nccl_heartbeat_timeout_sec)


def _container_restarts(config: JobConfig) -> str | int:
    return "no limit" if config.backoff_limit < 0 else config.backoff_limit


FIGURES: Final[Mapping[str, Figure]] = {
    "nodes": _nodes,
    "initial_nodes": lambda config: config.initial_nodes,
    "workers_per_node": lambda config: config.nproc_per_node,
    "gpus_at_most": most_gpus,
    "memory_per_node": lambda config: config.resources.memory,
    "memory_at_most": _memory_at_most,
    "shared_memory": _shared_memory,
    "join_timeout_seconds": lambda config: config.elastic.rdzv_configs.join_timeout,
    "last_call_timeout_seconds": lambda config: config.elastic.rdzv_configs.last_call_timeout,
    "hang_timeout_seconds": lambda config: config.runtime.hang_timeout_seconds,
    "worst_case_failure_seconds": _failure_detection,
    "termination_grace_period_seconds": lambda config: config.disruption.termination_grace_period_seconds,
    "active_deadline_seconds": lambda config: config.run_policy.active_deadline_seconds,
    "max_restarts": lambda config: config.elastic.max_restarts,
    "container_restarts": _container_restarts,
}
"""Name to figure, in the order in which they are shown."""
