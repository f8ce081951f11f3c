"""Resolves torchrun's options into one frozen ``Plan``.

Pure, except that ``check_entrypoint`` reads the file system. The rules are torchrun's, of
``config_from_args`` and ``run`` in https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Final, Literal

from ..settings import LauncherSettings, env_name
from . import option_values, visible_devices
from .options import OptionsError

C10D_PORT: Final = 29400
"""Torchrun's port for an endpoint that names none."""
MASTER_PORT: Final = 29500
"""Torchrun's port of the workers' own store under static rendezvous."""
OUR_BACKEND: Final = "c10d"
"""Torchrun itself runs a launch on any other rendezvous backend, because only torch has clients for those stores."""
MISSING_UNDER_TORCHRUN: Final = (
    "membership changes without a restart, warm start, hang detection, the watchdog, events, status, the webhook "
    "and the exit codes"
)
"""The features that a launch lacks where torchrun runs it."""


@dataclasses.dataclass(frozen=True)
class Entrypoint:
    """The program that every worker runs."""

    kind: Literal["script", "module", "command", "run_path"]
    target: str
    arguments: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        """Whether the launcher starts the interpreter itself, so that bootstrap and warm start apply."""
        return self.kind != "command"


@dataclasses.dataclass(frozen=True)
class LogPlan:
    """The destinations of the workers' output."""

    directory: str | None = None
    """Folder given by the user; None makes a temporary one, as torchrun does."""
    redirects: Mapping[int | None, frozenset[option_values.Stream]] = dataclasses.field(default_factory=dict)
    """Streams that go to files, by local rank; the key None stands for every rank that is not named."""
    tee: Mapping[int | None, frozenset[option_values.Stream]] = dataclasses.field(default_factory=dict)
    """Streams that go to files and to the console."""
    console_ranks: frozenset[int] | None = None
    """Local ranks whose output reaches the console; None means all."""
    prefix_template: str | None = None
    stdout_filters: tuple[str, ...] = ()
    stderr_filters: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
    """A launch, fully resolved."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    host: str
    port: int
    hosts_store: bool | None
    """Whether this node serves the store; None means decide by whether ``host`` is one of its addresses."""
    run_id: str
    join_timeout_seconds: float
    last_call_seconds: float
    max_restarts: int
    role: str
    local_address: str | None
    master: tuple[str, int] | None
    """Address and port that the user fixed for the workers' own store (one node, static rendezvous)."""
    entrypoint: Entrypoint
    logs: LogPlan
    shutdown_grace_seconds: float
    signals: str
    """Names of the signals that stop the job, as given."""
    virtual_local_rank: bool
    standalone: bool
    warnings: tuple[str, ...] = ()
    """Lines to tell the user at the start."""


@dataclasses.dataclass(frozen=True)
class Delegated:
    """A launch that torchrun itself has to run, with the reason."""

    reason: str


def resolve(
    given: argparse.Namespace,
    settings: LauncherSettings,
    environ: Mapping[str, str],
    *,
    nproc_per_node: int,
    new_run_id: str,
) -> Plan | Delegated:
    """Turn torchrun's namespace into a plan.

    Args:
        given: what ``options.parse`` returned.
        settings: the launcher's own settings.
        environ: the launcher's environment.
        nproc_per_node: the resolved count (``devices``).
        new_run_id: a fresh id for jobs that torchrun gives one.

    Raises:
        OptionsError: values that cannot be used, with both numbers where a relation is broken.
    """
    min_nodes, max_nodes = option_values.node_range(given.nnodes)
    standalone = given.standalone or _is_implicitly_standalone(given, max_nodes)
    backend = OUR_BACKEND if standalone else given.rdzv_backend
    static = backend == "static" and max_nodes == 1
    if given.logs_specs or given.numa_binding:
        option = "--logs-specs" if given.logs_specs else "--numa-binding"
        return Delegated(f"{option} is torch's own machinery")
    if backend != OUR_BACKEND and not static:
        return Delegated(f"rendezvous backend {backend} on {given.nnodes} nodes")
    conf = option_values.rendezvous_conf(given.rdzv_conf)
    alone = standalone or static
    host, port = ("localhost", 0) if alone else option_values.endpoint(given.rdzv_endpoint, C10D_PORT)
    run_id = new_run_id if standalone else given.rdzv_id
    if given.virtual_local_rank:
        visible_devices.check_one_each(nproc_per_node, environ)
    return Plan(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        nproc_per_node=option_values.at_least(1, "--nproc-per-node", nproc_per_node),
        host=host,
        port=port,
        hosts_store=True if alone else option_values.tristate(conf.get("is_host")),
        run_id=run_id,
        join_timeout_seconds=_seconds(conf, "join_timeout", 600.0),
        last_call_seconds=_seconds(conf, "last_call_timeout", 5.0),
        max_restarts=option_values.at_least(0, "--max-restarts", given.max_restarts),
        role=given.role,
        local_address=given.local_addr or environ.get("POD_IP") or None,
        master=_fixed_master(given) if static else None,
        entrypoint=_entrypoint(given),
        logs=_log_plan(given, environ),
        shutdown_grace_seconds=_grace(given, settings, environ),
        signals=given.signals_to_handle,
        virtual_local_rank=given.virtual_local_rank,
        standalone=standalone,
        warnings=tuple(_warnings(given, run_id, alone=alone)),
    )


def check_entrypoint(
    entrypoint: Entrypoint,
    *,
    readable: Callable[[str, int], bool] = os.access,
    which: Callable[[str], str | None] = shutil.which,
) -> None:
    """Raise before the start where every worker would fail.

    Raises:
        OptionsError: the script or program is missing or may not be read.
    """
    target = entrypoint.target
    if entrypoint.kind == "module":
        return
    if entrypoint.kind == "command":
        if which(target) is None:
            message = f"The program {target!r} was not found or is not executable. Check the path or PATH."
            raise OptionsError(message)
        return
    if not os.path.exists(target):
        message = f"The script {target!r} does not exist in {os.getcwd()!r}. Check the path and the image."
        raise OptionsError(message)
    if not readable(target, os.R_OK):
        message = f"The script {target!r} cannot be read by user {os.getuid()}. Check its permissions."
        raise OptionsError(message)


def _is_implicitly_standalone(given: argparse.Namespace, max_nodes: int) -> bool:
    plain = given.rdzv_backend == "static" and not given.rdzv_endpoint and given.master_port is None
    return bool(plain and max_nodes == 1)


def _fixed_master(given: argparse.Namespace) -> tuple[str, int]:
    if given.rdzv_endpoint:
        return option_values.endpoint(given.rdzv_endpoint, MASTER_PORT)
    return given.master_addr, MASTER_PORT if given.master_port is None else given.master_port


def _entrypoint(given: argparse.Namespace) -> Entrypoint:
    if given.run_path:
        kind: Literal["script", "module", "command", "run_path"] = "run_path"
    elif given.no_python and given.module:
        message = "--no-python and --module exclude each other: a module needs Python. Drop one."
        raise OptionsError(message)
    else:
        kind = "command" if given.no_python else "module" if given.module else "script"
    return Entrypoint(kind, given.training_script, tuple(given.training_script_args))


def _log_plan(given: argparse.Namespace, environ: Mapping[str, str]) -> LogPlan:
    template = given.log_line_prefix_template or environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
    return LogPlan(
        directory=given.log_dir,
        redirects=option_values.stream_map("--redirects", given.redirects),
        tee=option_values.stream_map("--tee", given.tee),
        console_ranks=option_values.local_ranks(given.local_ranks_filter),
        prefix_template=template or None,
        stdout_filters=tuple(given.duplicate_stdout_filters),
        stderr_filters=tuple(given.duplicate_stderr_filters),
    )


def _grace(given: argparse.Namespace, settings: LauncherSettings, environ: Mapping[str, str]) -> float:
    if given.shutdown_timeout is not None:
        return float(option_values.at_least(0, "--shutdown-timeout", given.shutdown_timeout))
    older = environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
    if older and not environ.get(env_name("shutdown_grace_seconds")):
        return option_values.number("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", older)
    return settings.shutdown_grace_seconds


def _warnings(given: argparse.Namespace, run_id: str, *, alone: bool) -> list[str]:
    lines = []
    if run_id == "none" and not alone:
        lines.append('--rdzv-id is "none": two jobs that share this store would join each other. Give each its own id.')
    if given.event_log_handler != "null":
        lines.append("--event-log-handler has no effect here; set ELASTIC_INFRA_EVENTS for event lines.")
    if given.start_method != "spawn":
        lines.append("--start-method has no effect on scripts; functions are always spawned.")
    if given.node_rank and not alone:
        lines.append("--node-rank is ignored: only static rendezvous uses it.")
    unknown = option_values.signal_numbers(given.signals_to_handle)[1]
    if unknown:
        lines.append(f"--signals-to-handle: there is no signal {', '.join(unknown)}; ignored.")
    return lines


def _seconds(conf: Mapping[str, str], key: str, default: float) -> float:
    return option_values.number(f"--rdzv-conf {key}", conf[key]) if key in conf else default
