"""``elastic_launch(LaunchConfig, function)(*args)``: torch's function API on our launcher.

The signature and ``LaunchConfig`` are torch's (``torch.distributed.launcher.api``); the config is read field by field
because torch added fields over the releases. A function runs as ``spawn`` would run it: pickled, in fresh interpreters
that import it by name. The launch becomes a command line, so that restarts, warm start and exit codes work as for a
script. This module may import torch, lazily and for ``ChildFailedError`` only.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from .command_line import options
from .settings import PREFIX

RESULTS: Final = PREFIX + "RESULTS"
"""Variable with the folder in which each rank leaves the function's result."""
LAUNCHER: Final = (sys.executable, "-m", __package__)

_VALUES: Final = {
    "nproc_per_node": "--nproc-per-node",
    "run_id": "--rdzv-id",
    "role": "--role",
    "rdzv_endpoint": "--rdzv-endpoint",
    "rdzv_backend": "--rdzv-backend",
    "max_restarts": "--max-restarts",
    "monitor_interval": "--monitor-interval",
    "log_line_prefix_template": "--log-line-prefix-template",
    "local_addr": "--local-addr",
    "event_log_handler": "--event-log-handler",
    "signals_to_handle": "--signals-to-handle",
    "shutdown_timeout": "--shutdown-timeout",
}
"""Fields of ``LaunchConfig`` that are options with the same name and value."""


class LaunchError(RuntimeError):
    """The workers failed; the message has the launcher's exit code. Raised where torch is not installed."""


class elastic_launch:  # noqa: N801  torch's name
    """Launches workers on this node that run a function or a program.

    Args:
        config: torch's ``LaunchConfig``, or an object with the same fields.
        entrypoint: a function that can be pickled by name, or a program.
    """

    def __init__(self, config: object, entrypoint: Callable[..., Any] | str) -> None:
        self._config = config
        self._entrypoint = entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:  # noqa: ANN401  the function's own arguments
        """Run the entrypoint on this node's workers, and wait for them.

        Args:
            *args: arguments of the entrypoint; those of a program are turned into text.

        Returns:
            What the function returned, by global rank of this node's workers; empty for a program.

        Raises:
            ChildFailedError: the workers failed beyond their budget (``LaunchError`` without torch).
            options.OptionsError: the config cannot be used, or the start method is not "spawn".
        """
        with tempfile.TemporaryDirectory(prefix="elastic_infra_api_") as folder:
            arguments = command_line(self._config, self._entrypoint, args, Path(folder))
            environ = {
                **os.environ,
                RESULTS: folder,
                "PYTHONPATH": os.pathsep.join(
                    dict.fromkeys(each for each in sys.path if each and isinstance(each, str))
                ),
            }
            done = subprocess.run([*LAUNCHER, *arguments], env=environ, check=False)
            if done.returncode:
                raise _failure(done.returncode, self._entrypoint, Path(folder))
            return results(Path(folder)) if callable(self._entrypoint) else {}


def command_line(
    config: object, entrypoint: Callable[..., Any] | str, args: tuple[Any, ...], folder: Path
) -> tuple[str, ...]:
    """The launcher's arguments for a config.

    Raises:
        options.OptionsError: a field has no counterpart here.
    """
    method = getattr(config, "start_method", "spawn")
    if callable(entrypoint) and method != "spawn":
        message = f"start_method {method!r}: functions are always spawned. Use 'spawn'."
        raise options.OptionsError(message)
    words = [f"--nnodes={_field(config, 'min_nodes')}:{_field(config, 'max_nodes')}"]
    for field, option in _VALUES.items():
        value = getattr(config, field, None)
        if value not in (None, ""):
            words.append(f"{option}={value}")
    conf = ",".join(f"{name}={value}" for name, value in getattr(config, "rdzv_configs", {}).items())
    words += [f"--rdzv-conf={conf}"] if conf else []
    words += ["--virtual-local-rank"] if getattr(config, "virtual_local_rank", False) else []
    words += _filters(config)
    if not callable(entrypoint):
        return (*words, "--no-python", entrypoint, *(str(argument) for argument in args))
    call = folder / "call.pickle"
    call.write_bytes(pickle.dumps((_main_of(entrypoint), pickle.dumps((entrypoint, args)))))
    return (*words, "-m", f"{__package__}.workers.call_function", str(call))


def _main_of(function: Callable[..., Any]) -> dict[str, str]:
    """How a worker imports the caller's ``__main__`` where the function is defined in it, as in ``multiprocessing``."""
    main = sys.modules["__main__"]
    if function.__module__ != "__main__":
        return {}
    if main.__spec__ is not None:
        return {"init_main_from_name": main.__spec__.name}
    path = getattr(main, "__file__", None)
    return {"init_main_from_path": os.path.abspath(path)} if path else {}


def results(folder: Path) -> dict[int, Any]:
    """The results that the ranks of this node left, by global rank."""
    files = sorted(folder.glob("*.result"), key=lambda path: int(path.stem))
    return {int(path.stem): pickle.loads(path.read_bytes()) for path in files}  # noqa: S301  ours


def _filters(config: object) -> list[str]:
    words = []
    for stream in ("stdout", "stderr"):
        listed = getattr(config, f"duplicate_{stream}_filters", None)
        if listed:
            escaped = ",".join(word.replace(",", ",,") for word in listed)
            words.append(f"--duplicate-{stream}-filters={escaped}")
    return [*words, *_log_options(getattr(config, "logs_specs", None))]


def _log_options(specs: object) -> list[str]:
    """Options from torch's ``LogsSpecs``, whose base class keeps the streams in attributes without a public name."""
    words = []
    if directory := getattr(specs, "root_log_dir", None):
        words.append(f"--log-dir={directory}")
    for option, name in (("--redirects", "_redirects"), ("--tee", "_tee")):
        if streams := _streams(getattr(specs, name, None)):
            words.append(f"{option}={streams}")
    if ranks := getattr(specs, "_local_ranks_filter", None):
        words.append(f"--local-ranks-filter={','.join(map(str, sorted(ranks)))}")
    return words


def _streams(given: object) -> str:
    """``Std``, or ``Std`` by local rank, in the form of the command line; empty for none."""
    if isinstance(given, Mapping):
        return ",".join(f"{rank}:{int(streams)}" for rank, streams in given.items() if int(streams))
    return str(int(given)) if isinstance(given, int) and given else ""


def _field(config: object, name: str) -> object:
    try:
        return getattr(config, name)
    except AttributeError as error:
        message = f"The launch config has no {name}."
        raise options.OptionsError(message) from error


def _failure(code: int, entrypoint: Callable[..., Any] | str, folder: Path) -> Exception:
    """Torch's own error where torch is installed, since callers catch it by that name."""
    name = getattr(entrypoint, "__name__", str(entrypoint))
    message = f"{name} failed; the launcher exited with code {code}."
    failed: Mapping[int, Path] = {int(path.stem): path for path in folder.glob("*.error")}
    try:
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
    except ImportError:
        return LaunchError(message)
    failures = {
        rank: ProcessFailure(local_rank=rank, pid=0, exitcode=code, error_file=str(path))
        for rank, path in failed.items()
    } or {0: ProcessFailure(local_rank=0, pid=0, exitcode=code, error_file="")}
    error: Exception = ChildFailedError(name, failures)
    return error
