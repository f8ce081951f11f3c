"""From a generation's facts to the worker processes of this node: command lines and environments.

Pure. The environment is torchrun's, value for value (``LocalElasticAgent._start_workers`` in
https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/agent/server/local_elastic_agent.py), plus ours.
The supervisor starts the processes.
"""

from __future__ import annotations

import dataclasses
import os
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .. import defaults, ipc
from ..command_line import visible_devices
from ..command_line.plan import Entrypoint, Plan
from ..settings import PREFIX, SECRETS, LauncherSettings, env_name
from . import channel, progress

if TYPE_CHECKING:
    from ..protocol.actions import StartWorkers
    from .logs import Destination

GENERATION: Final = PREFIX + "GENERATION"
"""Variable with the generation's number; checkpoints carry the number and refuse an older writer."""
ATTEMPT: Final = PREFIX + "ATTEMPT"
"""Variable with the number of times that this job's workers were started before, for any cause."""
LAUNCH: Final = PREFIX + "LAUNCH"
"""Variable with the launch's name, which workers and their children inherit, so that their orphans are recognised."""
MODULES: Final = PREFIX + "MODULES"
"""Variable with the file to which the bootstrap appends the modules that its program imports, for the fork server."""

DIFFERING: Final = ("RANK", "LOCAL_RANK", "ROLE_RANK", "GROUP_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
                    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
                    "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_ERROR_FILE", GENERATION, ATTEMPT,
                    progress.VARIABLE, channel.VARIABLE)  # fmt: skip
"""Variables of one worker or of one generation, which ``environ_of_any`` lacks."""

_PLACE: Final = (
    *("RANK", "ROLE_RANK", "GROUP_RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", GENERATION, ATTEMPT),
)

_SECRETS: Final = frozenset(map(env_name, SECRETS))
"""Secrets, which workers do not get because they do not need them."""


@dataclasses.dataclass(frozen=True)
class Files:
    """Paths that the workers of one generation use."""

    targets: tuple[Destination, ...]
    """Output of each local rank."""
    progress: str
    """The generation's progress memory."""
    interpreter: str
    """The Python that runs scripts."""
    bootstrap: str
    """The bootstrap's source."""
    launch: str = ""
    """The launch's name."""
    modules: str = ""
    """Folder for the records of imported modules; empty records none."""
    channel: str = ""
    """The agent's socket for workers that can be moved; empty where there is none."""


def plan(
    start: StartWorkers, launch: Plan, settings: LauncherSettings, environ: Mapping[str, str], files: Files
) -> tuple[ipc.WorkerSpec, ...]:
    """The workers of this node.

    Args:
        start: the group's facts.
        launch: the resolved command line.
        settings: the launcher's settings.
        environ: the launcher's environment.
        files: paths for this generation.
    """
    common = _common_environ(start, launch, settings, environ)
    specs = []
    for target in files.targets:
        mine = {
            **common,
            **_rank_environ(start, launch, environ, target.local_rank),
            "TORCHELASTIC_ERROR_FILE": target.error_file,
            LAUNCH: files.launch,
            progress.VARIABLE: f"{target.local_rank}:{files.progress}",
        }
        if files.channel:
            mine[channel.VARIABLE] = files.channel
        if files.modules:
            mine[MODULES] = os.path.join(files.modules, str(target.local_rank))
        argv = command_line(launch.entrypoint, files.interpreter, files.bootstrap, target.local_rank)
        specs.append(ipc.WorkerSpec(target.local_rank, argv, mine, target.stdout, target.stderr))
    return tuple(specs)


def place_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of a worker's environment that another generation changes, for a worker that lives on in it."""
    return {name: environ[name] for name in _PLACE}


def command_line(entrypoint: Entrypoint, interpreter: str, bootstrap: str, local_rank: int) -> tuple[str, ...]:
    """A worker's command line; ``${local_rank}`` in the script's arguments is replaced, as torchrun does."""
    arguments = tuple(
        string.Template(argument).safe_substitute(local_rank=str(local_rank)) for argument in entrypoint.arguments
    )
    if not entrypoint.is_python:
        return (entrypoint.target, *arguments)
    return (interpreter, "-u", bootstrap, entrypoint.kind, entrypoint.target, *arguments)


def may_fork(launch: Plan, settings: LauncherSettings) -> bool:
    """Whether a fork server may fork this launch's workers: they run Python, and warm start is on."""
    return settings.warm_start and launch.entrypoint.is_python


def differing(launch: Plan) -> tuple[str, ...]:
    """Names of the variables that differ between workers, or that a process without a rank does not have."""
    virtual = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") if launch.virtual_local_rank else ()
    return (*DIFFERING, *virtual)


def environ_of_any(launch: Plan, settings: LauncherSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that all workers of this node share, which is enough for imports."""
    inherited = {name: value for name, value in environ.items() if name not in _SECRETS}
    missing = defaults.runtime_defaults(settings, inherited, nproc_per_node=launch.nproc_per_node)
    return {**inherited, **missing}


def _common_environ(
    start: StartWorkers, launch: Plan, settings: LauncherSettings, environ: Mapping[str, str]
) -> dict[str, str]:
    return {
        **environ_of_any(launch, settings, environ),
        "GROUP_RANK": str(start.group_rank),
        "ROLE_NAME": launch.role,
        "LOCAL_WORLD_SIZE": str(start.local_world_size),
        "WORLD_SIZE": str(start.world_size),
        "GROUP_WORLD_SIZE": str(start.group_world_size),
        "ROLE_WORLD_SIZE": str(start.world_size),
        "MASTER_ADDR": start.master_address,
        "MASTER_PORT": str(start.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(start.restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(launch.max_restarts),
        "TORCHELASTIC_RUN_ID": launch.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": launch.signals,
        GENERATION: str(start.generation),
        ATTEMPT: str(start.attempt),
    }


def _rank_environ(start: StartWorkers, launch: Plan, environ: Mapping[str, str], local_rank: int) -> dict[str, str]:
    rank = str(start.first_rank + local_rank)
    virtual = _one_visible_device(environ, local_rank) if launch.virtual_local_rank else {}
    shown = "0" if launch.virtual_local_rank else str(local_rank)
    return {"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": shown, **virtual}


def _one_visible_device(environ: Mapping[str, str], local_rank: int) -> dict[str, str]:
    """Only this worker's accelerator, at index 0."""
    name, chosen = visible_devices.listed(environ)
    device = str(local_rank) if chosen is None else chosen[local_rank]
    return {"CUDA_VISIBLE_DEVICES": device, name: device}
