"""Environment variables that a worker gets when the user did not choose them.

One pure function from the settings and an environment to the variables that are missing in that environment. Present
values, empty ones included, are never overridden, and neither ``os.environ`` nor the machine is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from .settings import LauncherSettings

SKIP_CLEAN_UP: Final = 3
"""c10d's own error mode: end the process without aborting communicators, since the abort may hang. Torchrun alone would
force 1 (https://github.com/pytorch/pytorch/pull/110723 says why c10d left that mode)."""


@dataclasses.dataclass(frozen=True)
class RuntimeDefault:
    """One variable with the value it gets when none of its names is set."""

    name: str
    value: str
    aliases: tuple[str, ...] = ()
    """Older names that torch still reads; a user who set one of them has chosen."""


def runtime_defaults(settings: LauncherSettings, environ: Mapping[str, str], *, nproc_per_node: int) -> dict[str, str]:
    """The variables that a worker's environment lacks.

    Args:
        settings: the launcher's settings; those that are None leave torch's own default alone.
        environ: the environment the worker would otherwise get.
        nproc_per_node: workers of this node.
    """
    return {
        default.name: default.value
        for default in _defaults(settings, nproc_per_node)
        if environ.keys().isdisjoint((default.name, *default.aliases))
    }


def _defaults(settings: LauncherSettings, nproc_per_node: int) -> tuple[RuntimeDefault, ...]:
    error_handling = settings.nccl_async_error_handling
    candidates = (
        _optional("OMP_NUM_THREADS", _omp_num_threads(settings, nproc_per_node)),
        RuntimeDefault("PYTHONUNBUFFERED", "1"),
        RuntimeDefault("PYTHONFAULTHANDLER", "1"),
        RuntimeDefault(
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            str(SKIP_CLEAN_UP if error_handling is None else error_handling),
            aliases=("NCCL_ASYNC_ERROR_HANDLING",),
        ),
        _optional("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", settings.nccl_heartbeat_timeout_seconds),
        _optional("TORCH_NCCL_ENABLE_MONITORING", settings.nccl_enable_monitoring),
    )
    return tuple(candidate for candidate in candidates if candidate is not None)


def _omp_num_threads(settings: LauncherSettings, nproc_per_node: int) -> int | None:
    if settings.omp_num_threads is not None:
        return settings.omp_num_threads
    return 1 if nproc_per_node > 1 else None


def _optional(name: str, value: int | None) -> RuntimeDefault | None:
    return None if value is None else RuntimeDefault(name, str(int(value)))
