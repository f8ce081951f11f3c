"""Reads the elastic task config of Flyte's PyTorch plugin, so that a Flyte user can move with one call.

The module reads attributes and never imports flytekit. Fields with equal names are taken over; where the two differ a
comment at the field gives the reason. Source: https://github.com/flyteorg/flytekit, plugins/flytekit-kf-pytorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from elastic_infra.config.errors import ConfigError, Fault


class FlyteRunPolicy(Protocol):
    """The attributes of ``flytekitplugins.kfpytorch.RunPolicy`` that are read."""

    clean_pod_policy: Any
    ttl_seconds_after_finished: int | None
    active_deadline_seconds: int | None
    backoff_limit: int | None


class FlyteElastic(Protocol):
    """The attributes of ``flytekitplugins.kfpytorch.Elastic`` that are read."""

    nnodes: int | str
    nproc_per_node: int
    start_method: str
    monitor_interval: int
    max_restarts: int
    rdzv_configs: dict[str, Any]
    increase_shared_mem: bool
    run_policy: FlyteRunPolicy | None


_SAME: Final = ("nnodes", "nproc_per_node", "start_method", "monitor_interval", "max_restarts")
_NO_TORCH_STORE: Final = "read_timeout"
"""Budget of torch's TCPStore, which the launcher does not use; `join_timeout` bounds its own store."""


def fields_of(task: FlyteElastic) -> dict[str, Any]:
    """The fields of a `JobConfig` that a Flyte task config sets, in plain data.

    Raises:
        ConfigError: the object is no elastic task config.
    """
    missing = [name for name in (*_SAME, "rdzv_configs", "increase_shared_mem") if not hasattr(task, name)]
    if missing:
        reason = (
            f"is no flytekitplugins.kfpytorch.Elastic: it has no {missing[0]}. For a PyTorch task config, which has "
            "a fixed number of workers, write elastic.nnodes yourself: its workers and its master together."
        )
        raise ConfigError([Fault("", reason)])
    budgets = {name: value for name, value in task.rdzv_configs.items() if name != _NO_TORCH_STORE}
    single = task.nnodes == 1
    return {
        "elastic": {**{name: getattr(task, name) for name in _SAME}, "rdzv_configs": budgets},
        "shared_memory": bool(task.increase_shared_mem),
        "run_policy": _run_policy(task.run_policy, single=single),
        # Flyte makes a plain pod for the number 1, and a PyTorchJob for anything else, "1" in quotes too.
        "target": "auto" if single else "pytorchjob",
    }


def _run_policy(policy: FlyteRunPolicy | None, *, single: bool) -> dict[str, Any]:
    if policy is None:
        return {}
    fields = {
        # By name, since the plugin's enum is a dataclass with equal members. A single pod needs no cleaning.
        "clean_pod_policy": None if single else _clean_pod_policy(policy.clean_pod_policy),
        "ttl_seconds_after_finished": policy.ttl_seconds_after_finished,
        # Flyte drops zeros. 0 is no deadline here either, but a ttl or a backoff limit of 0 is a value.
        "active_deadline_seconds": policy.active_deadline_seconds or None,
        "backoff_limit": policy.backoff_limit,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _clean_pod_policy(policy: Any) -> str:  # noqa: ANN401 - an enum of flytekit's
    """Flyte sends NONE as soon as there is a run policy without one."""
    return "None" if policy is None else str(policy.name).capitalize()


def merged(task: FlyteElastic, rest: Mapping[str, Any]) -> dict[str, Any]:
    """A whole config: Flyte's fields under the ones given here, part by part."""
    fields = fields_of(task)
    both = {name: {**part, **rest[name]} for name, part in fields.items() if _are_mappings(part, rest.get(name))}
    return {**fields, **rest, **both}


def _are_mappings(*parts: object) -> bool:
    return all(isinstance(part, Mapping) for part in parts)
