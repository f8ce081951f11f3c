"""A part of the testbed: the files and the process it needs, how to tell that it is ready, and what it waits for.

Modules beside this one each describe one part as data; this one starts them, each as soon as the parts it
needs are ready.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.testbed.layout import SYSTEM_PATH

READY_SECONDS = 120
"""How long a part may take; ten times what the slowest takes on two cores, so that only a broken one fails."""
POLL_SECONDS = 0.1


class StartError(Exception):
    """A part did not come up; the message names it, the cause and its log."""


def always() -> bool:
    """Ready as soon as it runs."""
    return True


def nothing() -> None:
    """A step without an effect."""


@dataclass(frozen=True)
class Component:
    """One part of the testbed."""

    name: str
    command: tuple[str, ...] = ()
    """The process to start; empty for a part that is only steps."""
    needs: tuple[str, ...] = ()
    """Parts that must be ready before this one starts."""
    files: Mapping[Path, str] = field(default_factory=dict)
    """Written before `prepare`; only the owner can read them."""
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] = nothing
    """Runs before the process starts."""
    ready: Callable[[], bool] = always
    """Called until it returns true."""
    finish: Callable[[], None] = nothing
    """Runs once the part is ready, before parts that need it start."""


def start(component: Component, logs: Path) -> int | None:
    """Starts one part and returns its process id, if it has a process, when it is ready.

    Raises:
        StartError: it ended, or took longer than `READY_SECONDS`.
    """
    for path, text in component.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text)
    component.prepare()
    log = logs / f"{component.name}.log"
    pid = _spawn(component, log) if component.command else None
    deadline = time.monotonic() + READY_SECONDS
    while not component.ready():
        if pid is not None and (status := _end_of(pid)) is not None:
            raise StartError(_report(component.name, f"ended with status {status}", log))
        if time.monotonic() > deadline:
            raise StartError(_report(component.name, f"not ready after {READY_SECONDS} s", log))
        time.sleep(POLL_SECONDS)
    component.finish()
    return pid


def start_all(
    components: Sequence[Component], logs: Path, started: Callable[[Component, int | None, float], None]
) -> None:
    """Starts all parts, at the same time where their needs allow; `components` come after what they need.

    `started` hears of each part with its process id and the seconds it took, from several threads.
    """
    failed = threading.Event()

    def run(component: Component, needs: Sequence[Future[None]]) -> None:
        for need in needs:
            need.result()
        if failed.is_set():
            return
        begin = time.monotonic()
        try:
            pid = start(component, logs)
        except BaseException:
            failed.set()
            raise
        started(component, pid, time.monotonic() - begin)

    futures: dict[str, Future[None]] = {}
    with ThreadPoolExecutor(len(components)) as pool:
        for component in components:
            needs = [futures[name] for name in component.needs]
            futures[component.name] = pool.submit(run, component, needs)
    for future in futures.values():
        future.result()


def answers(url: str) -> bool:
    """Whether a health endpoint says 200; certificates are the testbed's own and not checked."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:  # fixed URLs
            return bool(answer.status == 200)  # HTTP's word for well
    except OSError:
        return False


def run(*command: str) -> str:
    """Runs a short command and returns its output; raises `StartError` with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(command)!r} ended with {done.returncode}: {done.stderr.strip()}."
        raise StartError(message)
    return done.stdout


def _spawn(component: Component, log: Path) -> int:
    to_log = (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    from_nowhere = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawnp(
        component.command[0],
        component.command,
        {"PATH": SYSTEM_PATH, "HOME": "/nonexistent", **component.env},
        file_actions=[from_nowhere, to_log, (os.POSIX_SPAWN_DUP2, 1, 2)],
    )


def _end_of(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _report(name: str, what: str, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
    return "\n  ".join([f"{name}: {what}; the end of {log}:", *lines])
