"""Runs other programs for the set-up: their output, or one line that says why not. Never a shell, never a hang."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

Say = Callable[[str], object]
"""Takes one line of progress; its answer is ignored."""


class SetupError(Exception):
    """Something cannot be had; the message says in one line why and what to do."""


def stopwatch() -> Say:
    """A ``say`` that prints each line with the seconds since now."""
    started = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - started:4.0f} s] {text}", flush=True)


def needed(program: str, why: str, path: str | None = None) -> str:
    """Where a program is on PATH, or on the search path given.

    Raises:
        SetupError: it is not there.
    """
    if path := shutil.which(program, path=path):
        return path
    message = f"{program} is not on PATH. {why}"
    raise SetupError(message)


@contextlib.contextmanager
def alone(folder: Path, wait: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Whoever names the same folder comes one after the other, other processes too; it is made where it is not there.

    Args:
        folder: a killed process lets go of it.
        wait: called once before a wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def output(
    command: Sequence[str | Path],
    *,
    folder: Path = ROOT,
    environ: Mapping[str, str] | None = None,
    limit_seconds: float | None = None,
) -> str:
    """The output of a program. With a limit, all processes that it started end with it.

    Raises:
        SetupError: it failed, or was not done within the limit.
    """
    words = itertools.takewhile(lambda word: not word.startswith("-"), map(str, command[1:]))
    name = " ".join([Path(command[0]).name, *words])
    with _start(command, folder, environ, own_group=limit_seconds is not None) as process:
        try:
            out, errors = process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            message = f"`{name}` was not done within {limit_seconds:g} s"
            raise SetupError(message) from None
        finally:
            if process.returncode is None and limit_seconds is not None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        message = f"`{name}` failed: {last_line(errors) or last_line(out) or f'exit code {process.returncode}'}"
        raise SetupError(message)
    return out.strip()


def _start(
    command: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None, *, own_group: bool
) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=own_group,
        )
    except OSError as error:
        message = f"`{Path(command[0]).name}` cannot be started: {error.strerror}"
        raise SetupError(message) from error


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
