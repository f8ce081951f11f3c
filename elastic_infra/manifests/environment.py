"""The environment of the training container: the launcher's variables first, then the user's.

Generated variables come first and sorted, the user's keep their order at the end, so that adding one variable
changes one entry of the list. A variable that the user sets is not generated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from elastic_infra.config import EnvVar, JobConfig, mount_paths
from elastic_infra.config.names import host_name
from elastic_infra.launcher.defaults import runtime_defaults
from elastic_infra.launcher.settings import HangTimeout, LauncherSettings, env_name
from elastic_infra.manifests.metadata import node_index_label
from elastic_infra.manifests.model import Value, without_none
from elastic_infra.manifests.store_token import VARIABLE, store_token_variable

CHECKPOINT_DIR: Final = "ELASTIC_INFRA_CHECKPOINT_DIR"
"""Tells the script where `storage.checkpoint` is mounted."""

WORKDIR: Final = "ELASTIC_INFRA_WORKDIR"
"""Tells the mounted launcher where local code is, for the search path of modules."""

WEBHOOK_URL: Final = env_name("webhook_url")

_HOMES: Final = {
    "HOME": mount_paths.HOME,
    "LOGNAME": "elastic",
    "TORCHINDUCTOR_CACHE_DIR": f"{mount_paths.HOME}/.cache/torchinductor",
    "TRITON_CACHE_DIR": f"{mount_paths.HOME}/.cache/triton",
    "USER": "elastic",
    "XDG_CACHE_HOME": f"{mount_paths.HOME}/.cache",
}
"""A user without an entry in the image's passwd file has no home, and torch asks getpass for a name:
https://github.com/pytorch/pytorch/issues/140765"""


def container_environment(name: str, config: JobConfig, torchrun: Mapping[str, Value]) -> list[Value]:
    """The container's `env` list.

    Args:
        name: the job's name.
        torchrun: torchrun's further `PET_*` variables, where no operator sets them.
    """
    generated = _generated(config, torchrun)
    if config.rendezvous_host != "none":
        generated[VARIABLE] = store_token_variable(name)
    if (webhook := config.launcher.webhook) is not None:
        reference: Value = {"name": webhook.secret, "key": webhook.key, "optional": True}
        generated[WEBHOOK_URL] = _from("secretKeyRef", WEBHOOK_URL, reference)
    ours: list[Value] = [generated[variable] for variable in sorted(generated.keys() - config.env.keys())]
    return ours + _composed(name, config) + [user_variable(variable, value) for variable, value in config.env.items()]


def _composed(name: str, config: JobConfig) -> list[Value]:
    """The variables made of others, which come after these: the kubelet knows `$(NAME)` of variables before."""
    if not config.has_indices:
        return []
    index = f"$({env_name('replica_index')})"
    return [{"name": env_name("node_name"), "value": host_name(name, config, index)}]


def _generated(config: JobConfig, torchrun: Mapping[str, Value]) -> dict[str, Value]:
    settings = launcher_settings(config)
    defaults = runtime_defaults(settings, dict.fromkeys(config.env, ""), nproc_per_node=config.nproc_per_node)
    checkpoint = config.storage.checkpoint
    values: dict[str, Value] = {
        **_HOMES,
        **defaults,
        **_without_applied(settings).to_env(),
        # The operator names these two variables but never sets them.
        "PET_MONITOR_INTERVAL": format(config.elastic.monitor_interval, "g"),
        "PET_START_METHOD": config.elastic.start_method,
        **torchrun,
        **({CHECKPOINT_DIR: checkpoint.mount_path} if checkpoint else {}),
        **_module_path(config),
    }
    fields = {"POD_IP": "status.podIP"}
    if not config.has_indices:  # whose pods have another name after each loss
        fields[env_name("node_name")] = "metadata.name"
    if not config.is_single_pod:
        fields[env_name("replica_index")] = f"metadata.labels['{node_index_label(config)}']"
    plain: dict[str, Value] = {name: {"name": name, "value": value} for name, value in values.items()}
    return plain | {name: _from("fieldRef", name, {"fieldPath": path}) for name, path in fields.items()}


def _module_path(config: JobConfig) -> dict[str, Value]:
    """Has modules searched in local code. A launcher that is mounted keeps the image's PYTHONPATH behind it."""
    if config.workdir is None:
        return {}
    is_mounted = config.launcher.delivery == "configmap"
    return {WORKDIR if is_mounted else "PYTHONPATH": config.workdir.mount_path}


def _without_applied(settings: LauncherSettings) -> LauncherSettings:
    """The settings without those that `runtime_defaults` has already turned into variables."""
    return dataclasses.replace(
        settings,
        nccl_async_error_handling=None,
        nccl_enable_monitoring=None,
        nccl_heartbeat_timeout_seconds=None,
        omp_num_threads=None,
    )


def launcher_settings(config: JobConfig) -> LauncherSettings:
    """The launcher's settings that follow from the config; the container reads them back from its environment."""
    runtime = config.runtime
    return LauncherSettings(
        nccl_collective_timeout_seconds=runtime.nccl_collective_timeout_sec,
        nccl_heartbeat_timeout_seconds=runtime.nccl_heartbeat_timeout_sec,
        nccl_async_error_handling=runtime.nccl_async_error_handling,
        nccl_enable_monitoring=runtime.nccl_enable_monitoring,
        omp_num_threads=runtime.omp_num_threads,
        shutdown_grace_seconds=runtime.shutdown_grace_seconds,
        failure_grace_seconds=runtime.failure_grace_seconds,
        hang_timeout_seconds=_hang_timeout(runtime.hang_timeout_seconds),
        startup_window_seconds=runtime.startup_window_seconds,
        startup_wait_seconds=0 if config.is_single_pod else runtime.startup_wait_seconds,
        startup_patience_seconds=None if config.is_single_pod else runtime.startup_patience_seconds,
        initial_nodes=None if config.is_single_pod else config.initial_nodes,
        node_unit=1 if config.is_single_pod else config.elastic.node_unit,
        world_sizes=() if config.is_single_pod else tuple(sorted(set(config.elastic.world_sizes))),
        warm_start=runtime.warm_start,
        log_level=runtime.log_level,
        events=config.launcher.events,
        metrics_port=config.launcher.metrics_port or 0,
    )


def _hang_timeout(text: str) -> HangTimeout:
    match text:
        case "auto" | "off":
            return text
        case _:
            return float(text)


def user_variable(name: str, variable: EnvVar) -> Value:
    """One variable of a user's, as a container has it."""
    if variable.secret is not None:
        return _from("secretKeyRef", name, without_none(name=variable.secret, key=variable.key))
    if variable.configmap is not None:
        return _from("configMapKeyRef", name, without_none(name=variable.configmap, key=variable.key))
    if variable.field is not None:
        return _from("fieldRef", name, {"fieldPath": variable.field})
    return {"name": name, "value": variable.value}


def _from(kind: str, name: str, reference: Value) -> Value:
    return {"name": name, "valueFrom": {kind: reference}}
