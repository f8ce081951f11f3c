"""From a command line to an exit code: reads, checks, starts the supervisor, and reports the end.

Only this module knows all parts. Heavy modules are imported once the command line is checked, and others where they are
needed: the mounted launcher compiles what it imports, and the import of torch begins only then.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from . import defaults, exit_codes, log
from .command_line import option_values, options, plan
from .settings import SECRETS, LauncherSettings, SettingsError, env_name
from .signals import Signals

if TYPE_CHECKING:
    from . import event_log, ipc, run_dir
    from .supervisor import children, supervisor


AgentMain = Callable[["ipc.Channel", plan.Plan, LauncherSettings, Mapping[str, str], "run_dir.RunDir"], None]
"""The agent's entry point, called in the process that the supervisor forks for the agent."""


def main(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    signals: Signals,
    agent_main: AgentMain | None = None,
) -> int:
    """Run a launch; returns the exit code of the table in ``exit_codes``."""
    try:
        settings = LauncherSettings.from_env(environ)
        environ = without_secrets(environ)
        given = options.parse(arguments, environ)
        workers = _workers_per_node(given.nproc_per_node, environ, signals)
        resolved = plan.resolve(given, settings, environ, nproc_per_node=workers, new_run_id=str(uuid.uuid4()))
        if isinstance(resolved, plan.Delegated):
            _run_torchrun(resolved, arguments, settings, environ, workers)
        plan.check_entrypoint(resolved.entrypoint)
        signals.handle(option_values.signal_numbers(resolved.signals)[0].values())
    except (options.OptionsError, SettingsError) as error:
        return exit_codes.of_signal(signals.caught[0]) if signals.caught else _refuse(str(error))
    except OSError as error:
        return _refuse(f"--signals-to-handle: a signal cannot be caught ({error.strerror}). Remove it.")
    if signals.caught:
        return exit_codes.of_signal(signals.caught[0])
    for line in resolved.warnings:
        log.say(line)
    return run(resolved, with_own_token(settings, resolved), environ, signals, agent_main)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the launcher's own secrets, for every process that the launcher starts."""
    secrets = set(map(env_name, SECRETS))
    for name in secrets:
        os.environ.pop(name, None)  # for processes that inherit the environment
    return {name: value for name, value in environ.items() if name not in secrets}


def with_own_token(settings: LauncherSettings, resolved: plan.Plan) -> LauncherSettings:
    """The settings with a fresh token for a store that only this launch uses, since others share the machine."""
    if resolved.port or settings.store_token:
        return settings
    return dataclasses.replace(settings, store_token=os.urandom(32).hex())


def run(
    resolved: plan.Plan,
    settings: LauncherSettings,
    environ: Mapping[str, str],
    signals: Signals,
    agent_main: AgentMain | None = None,
) -> int:
    """Supervise one launch, from the first process to the last."""
    from . import processes, run_dir
    from .workers import logs

    try:
        folder = logs.make_run_folder(resolved.logs.directory, resolved.run_id)
        files = run_dir.make(folder, environ, sys.executable)
    except OSError as error:
        log.say(f"Log files cannot be made: {error.strerror}: {error.filename!r}. Check --log-dir and the disk.")
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
    files: run_dir.RunDir,
    agent_main: AgentMain | None,
) -> int:
    from . import ipc, processes
    from .agent import store_host
    from .supervisor import children, fork_server_client, ownership, supervisor
    from .workers import failures

    resolved = dataclasses.replace(resolved, hosts_store=store_host.is_for(resolved, settings))

    def agent_process(channel: ipc.Channel) -> None:
        main = agent_main or importlib.import_module(".agent.agent", __package__).run
        main(channel, resolved, settings, environ, files)

    def store_process(host: str, port: int, listening: Callable[[int], None]) -> None:
        from .store import server

        server.serve(host, port, settings.store_token, listening)

    owner = ownership.here(files)
    family = children.Children(agent_process, store_process, owner)
    if resolved.hosts_store:  # while the agent loads
        family.host_store(ipc.HostStore(resolved.host, resolved.port))
    _announce(resolved, settings, processes.resident_megabytes(family.agent))
    load = fork_server_client.load_of(resolved, settings, environ)

    def new_watcher() -> supervisor.Supervisor:
        warm = fork_server_client.ForkServer(files, load, time.monotonic())
        return supervisor.Supervisor(family, signals, warm, owner, grace_seconds=resolved.shutdown_grace_seconds)

    watcher, leave = _watch_agents(family, new_watcher, settings)
    ended_at = time.monotonic()
    family.end(leave, interrupted=lambda: bool(signals.caught), is_clear=watcher.is_clear)
    code = exit_codes.final(leave.code, watcher.caught)
    if code != exit_codes.SUCCESS:
        failures.leave_behind(code, leave.reason, watcher.report, settings.termination_log, environ)
        _say_last(leave.reason, ended_at + leave.delivery_seconds, signals)
    return code


def _watch_agents(
    family: children.Children, new_watcher: Callable[[], supervisor.Supervisor], settings: LauncherSettings
) -> tuple[supervisor.Supervisor, ipc.Leave]:
    """Supervise one agent after the other, until an agent leaves or too many have been replaced."""
    from .supervisor import agent_replacement

    replacements = agent_replacement.Replacements()
    while True:
        watcher = new_watcher()
        leave = watcher.run()
        if watcher.agent_failure == "stuck":
            _event(settings, "watchdog_fired", {"message": leave.reason})
        after = replacements.next(time.monotonic()) if watcher.has_only_lost_its_agent else None
        if after is None:
            return watcher, leave
        replacements = after
        log.say(f"{leave.reason} Its workers were ended, and a new agent takes part as a new node.")
        _event(settings, "agent_replaced", {"message": leave.reason})
        family.replace_agent()


def _announce(resolved: plan.Plan, settings: LauncherSettings, megabytes: int) -> None:
    """One line and one event with the resolved settings; secrets are left out."""
    shown = {
        "nodes": f"{resolved.min_nodes}:{resolved.max_nodes}",
        "workers_per_node": resolved.nproc_per_node,
        "store": f"{resolved.host}:{resolved.port}",
        "run_id": resolved.run_id,
        "max_restarts": resolved.max_restarts,
        "script": resolved.entrypoint.target,
        "grace_seconds": resolved.shutdown_grace_seconds,
        "agent_megabytes": megabytes,
        **{name: value for name, value in settings.changed().items() if name not in SECRETS},
    }
    log.Log(settings.log_level).tell("info", " ".join(f"{name}={value}" for name, value in shown.items()))
    _event(settings, "launcher_started", shown)


def _event(settings: LauncherSettings, event: event_log.Name, fields: Mapping[str, object]) -> None:
    """Write an event of the supervisor; the agent writes most events."""
    if not settings.events:
        return
    from . import event_log

    node = settings.node_name or socket.gethostname()
    event_log.EventLog(settings.events, node).write(event, generation=0, attempt=0, fields=fields)


def _workers_per_node(text: str, environ: Mapping[str, str], signals: Signals) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    from .command_line import devices

    cpus = len(os.sched_getaffinity(0))
    number = devices.count(text, environ, os.listdir("/dev"), cpus)
    if number is None:
        interpreter = environ.get("PYTHON_EXEC") or sys.executable
        number = devices.ask_torch(text, interpreter, cpus, interrupted=lambda: bool(signals.caught))
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
    """Replace this process by torchrun, with the runtime defaults applied."""
    log.say(f"Torchrun runs this launch ({delegated.reason}); missing then: {plan.MISSING_UNDER_TORCHRUN}.")
    missing = defaults.runtime_defaults(settings, environ, nproc_per_node=workers)
    os.execve(
        sys.executable,
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        {**environ, **missing, **({"PET_STANDALONE": "1"} if environ.get("PET_STANDALONE") == "" else {})},
    )


def _refuse(message: str) -> int:
    log.say(message)
    return exit_codes.USAGE


def _say_last(line: str, until: float, signals: Signals) -> None:
    """Say the reason of the end; the exit waits until the console's reader takes the line, unless a signal came."""
    from . import console

    last = console.Console.start(2)
    last.say(line)
    while not last.close(1.0) and time.monotonic() < until and not signals.caught:
        pass
