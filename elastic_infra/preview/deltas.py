"""The figures for a reviewer: size, cost, time budgets and allowed failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from elastic_infra.config import JobConfig
from elastic_infra.config.time_budgets import budgets
from elastic_infra.config.values import quantity
from elastic_infra.preview.model import Delta

Figure = Callable[[JobConfig], "str | int | None"]


def deltas(old: JobConfig | None, new: JobConfig | None) -> Mapping[str, Delta]:
    """Every figure that differs, by name; of a job that only one side has, its size and limits."""
    both = old is not None and new is not None
    before, after = _figures(old, times=both), _figures(new, times=both)
    pairs = {name: Delta(before.get(name), after.get(name)) for name in {**before, **after}}
    return {name: delta for name, delta in pairs.items() if delta.old != delta.new}


def _figures(config: JobConfig | None, *, times: bool) -> dict[str, str | int | None]:
    if config is None:
        return {}
    bounds = {f"{budget.name}_seconds": _whole(budget.seconds) for budget in budgets(config)} if times else {}
    return {name: figure(config) for name, figure in FIGURES.items()} | bounds


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def _nodes(config: JobConfig) -> str:
    return config.elastic.nnodes


def _most_gpus(config: JobConfig) -> int | None:
    return config.resources.gpu.count * config.elastic.max_nodes if config.resources.gpu else None


def _most_claims(config: JobConfig) -> int | None:
    """What their devices are is not known here: a job that goes over to claims has fewer GPUs, and so many of these."""
    return len(config.resources.claims) * config.elastic.max_nodes or None


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


def container_restarts(config: JobConfig) -> str | int:
    """How many restarts of containers, over all pods, fail the job; in words where no number bounds them."""
    return restarts_within(config.backoff_limit if config.backoff_limit >= 0 else None, config.restarts_in_place)


def restarts_within(limit: int | None, are_in_place: bool) -> str | int:  # noqa: FBT001 - both figures' own fields
    """The same, of a backoff limit. A limit counts nothing where pods are made anew in their containers' place."""
    if not are_in_place:
        return "none (pods are made anew)"
    return "no limit" if limit is None else limit


FIGURES: Final[Mapping[str, Figure]] = {
    "nodes": _nodes,
    "initial_nodes": lambda config: config.initial_nodes,
    "workers_per_node": lambda config: config.nproc_per_node,
    "gpus_at_most": _most_gpus,
    "device_claims_at_most": _most_claims,
    "memory_per_node": lambda config: config.resources.memory,
    "memory_at_most": _memory_at_most,
    "shared_memory": _shared_memory,
    "max_restarts": lambda config: config.elastic.max_restarts,
    "container_restarts": container_restarts,
}
"""Name to figure, in the order in which they are shown; time budgets follow."""
