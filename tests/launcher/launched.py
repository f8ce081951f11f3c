"""Runs the real launcher as a separate process and observes it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
BEHAVE = pathlib.Path(__file__).parent / "scripts" / "behave.py"
MARK = "LAUNCHED_BY_TEST"
PATIENCE_SECONDS = 120.0
"""For states that must come; machines that run tests are slow at times."""

Record = dict[str, Any]


class Launched:
    """One launcher with its journal; every process below it carries a mark in its environment."""

    def __init__(
        self,
        folder: pathlib.Path,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        module: str = "elastic_infra.launcher",
        prefix: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.journal_path = folder / f"journal-{self.mark}"
        self.output_path = folder / f"output-{self.mark}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "ELASTIC_INFRA_"))}
        own = {MARK: self.mark, "JOURNAL": str(self.journal_path), "PYTHONPATH": str(ROOT)}
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", module, *arguments],
                env={**clean, **own, **(environ or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=stdin,
                cwd=folder,
            )

    @property
    def output(self) -> str:
        """What launcher and workers have written so far."""
        return self.output_path.read_text(errors="replace")

    def journal(self, event: str = "") -> list[Record]:
        """What the workers recorded, all or one kind."""
        if not self.journal_path.exists():
            return []
        records = [json.loads(line) for line in self.journal_path.read_text().splitlines()]
        return [record for record in records if not event or record["event"] == event]

    def wait_for(self, condition: Callable[[], Any], what: str = "the condition") -> Any:
        """Wait until it holds; a launcher that ends before it does is a failure with its output."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (value := condition()):
            ended = self.process.poll() is not None and not condition()
            assert not ended, f"ended with {self.process.returncode} before {what}:\n{self.output}"
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.output}"
            time.sleep(0.02)
        return value

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            message = f"the launcher does not end:\n{self.output}"
            raise AssertionError(message) from error

    def alive(self) -> list[int]:
        """Processes that carry the mark, the launcher included; zombies have no environment and are not in it."""
        mark = f"{MARK}={self.mark}".encode()
        return [pid for pid in _pids() if mark in _environ(pid).split(b"\0")]

    def children(self, of: int | None = None) -> list[int]:
        """Children of the launcher, or of another process."""
        parent = self.process.pid if of is None else of
        return [pid for pid in _pids() if _parent(pid) == parent]

    def is_handling(self, number: int) -> bool:
        """Whether the launcher has a handler for a signal by now."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(mask, 16) >> (number - 1) & 1)

    def end(self) -> None:
        """Kill all remaining processes; for fixtures."""
        self.process.kill()
        self.process.wait()
        kill(self.alive())


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each process; one may have ended since it was listed, of the death of another or by itself."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def command_line(pid: int) -> bytes:
    """Its arguments, separated by NUL; empty for a process that has ended."""
    return _read(pid, "cmdline")


def _environ(pid: int) -> bytes:
    return _read(pid, "environ")


def _read(pid: int, name: str) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])
