"""From a command line to an exit code: reads, checks, starts the supervisor, and reports the end.

The only module that knows all parts. Heavy modules are imported once the command line is known to be good.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from . import defaults, devices, exit_codes, options, plan, words
from .settings import LauncherSettings, SettingsError
from .signals import Signals

if TYPE_CHECKING:
    from . import runtime, seam


AgentMain = Callable[["seam.Channel", plan.Plan, LauncherSettings, Mapping[str, str], "runtime.Runtime"], None]
"""The agent's entry, run in the process that the supervisor forks for it."""


def main(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    signals: Signals,
    agent_main: AgentMain | None = None,
) -> int:
    """Run a launch; returns the exit code of the table in ``exit_codes``."""
    try:
        settings = LauncherSettings.from_env(environ)
        given = options.parse(arguments, environ)
        workers = _workers_per_node(given.nproc_per_node, environ)
        resolved = plan.resolve(given, settings, environ, nproc_per_node=workers, new_run_id=str(uuid.uuid4()))
        if isinstance(resolved, plan.Delegated):
            _run_torchrun(resolved, arguments, settings, environ, workers)
        plan.check_entrypoint(resolved.entrypoint)
        signals.handle(words.signal_numbers(resolved.signals)[0].values())
    except (options.OptionsError, SettingsError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"--signals-to-handle: a signal cannot be caught ({error.strerror}). Remove it.")
    if signals.caught:
        return exit_codes.of_signal(signals.caught[0])
    for line in resolved.warnings:
        _say(line)
    return run(resolved, settings, environ, signals, agent_main)


def run(
    resolved: plan.Plan,
    settings: LauncherSettings,
    environ: Mapping[str, str],
    signals: Signals,
    agent_main: AgentMain | None = None,
) -> int:
    """Supervise one launch, from the first process to the last."""
    from . import logs, processes, runtime

    try:
        folder = logs.make_run_folder(resolved.logs.directory, resolved.run_id)
        files = runtime.make(folder, environ, sys.executable)
    except OSError as error:
        _say(f"Log files cannot be made: {error.strerror}: {error.filename!r}. Check --log-dir and the disk.")
        return exit_codes.of_log_folder(error)
    try:
        processes.become_subreaper()
        return _supervise(resolved, settings, environ, signals, files, agent_main)
    finally:
        files.remove()


def _supervise(
    resolved: plan.Plan,
    settings: LauncherSettings,
    environ: Mapping[str, str],
    signals: Signals,
    files: runtime.Runtime,
    agent_main: AgentMain | None,
) -> int:
    from . import children, failures, supervisor, warm_parent

    def agent_process(channel: seam.Channel) -> None:
        main = agent_main or importlib.import_module(".agent", __package__).run
        main(channel, resolved, settings, environ, files)

    def store_process(host: str, port: int, listening: Callable[[int], None]) -> None:
        from .store import server

        server.serve(host, port, settings.store_token, listening)

    family = children.Children(agent_process, store_process)
    warm = warm_parent.WarmParent(files)
    watcher = supervisor.Supervisor(family, signals, warm, grace_seconds=resolved.shutdown_grace_seconds)
    leave = watcher.run()
    family.end(leave.keep_store_seconds, interrupted=lambda: bool(signals.caught))
    code = exit_codes.final(leave.code, watcher.caught)
    if code != exit_codes.SUCCESS:
        _say(leave.reason)
        message = failures.termination_message(code, leave.reason, watcher.report)
        failures.write_termination_message(settings.termination_log, message)
        error_file = environ.get("TORCHELASTIC_ERROR_FILE")
        if error_file and watcher.report:
            with contextlib.suppress(OSError):
                failures.write_error_file(error_file, watcher.report)
    return code


def _workers_per_node(text: str, environ: Mapping[str, str]) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    cpus = len(os.sched_getaffinity(0))
    number = devices.count(text, environ, os.listdir("/dev"), cpus)
    if number is None:
        number = devices.ask_torch(text, environ.get("PYTHON_EXEC") or sys.executable, cpus)
    if number < 1:
        message = f"--nproc-per-node {text}: no such device is available here. Give a number or cpu."
        raise options.OptionsError(message)
    return number


def _run_torchrun(
    delegated: plan.Delegated,
    arguments: Sequence[str],
    settings: LauncherSettings,
    environ: Mapping[str, str],
    workers: int,
) -> NoReturn:
    """Become torchrun, with the runtime defaults applied."""
    _say(
        f"Torchrun runs this launch ({delegated.reason}); missing then: membership changes without a restart, "
        "warm start, hang detection, the watchdog, events, status and the exit codes."
    )
    missing = defaults.runtime_defaults(settings, environ, nproc_per_node=workers)
    os.execve(
        sys.executable,
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        {**environ, **missing, **({"PET_STANDALONE": "1"} if environ.get("PET_STANDALONE") == "" else {})},
    )


def _refuse(message: str) -> int:
    _say(message)
    return exit_codes.USAGE


def _say(line: str) -> None:
    print(f"{options.PROGRAM}: {line}", file=sys.stderr, flush=True)
