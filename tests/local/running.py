"""Runs `elastic-infra run` as a user does, in a separate process, and observes it from outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from elastic_infra.timeline.files import Reader
from elastic_infra.timeline.records import Record
from tests.launcher.launched import kill

SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE_SECONDS = 120.0
"""For states that must come; machines that run tests are slow at times."""
FOREVER = 1_000_000
MARK = "RUN_BY_TEST"

JOB: Mapping[str, Any] = {
    "image": "registry.example.com/toy:1",
    "script": "count.py",
    "args": ["60"],
    "working_dir": "/app",
    "elastic": {"nnodes": "1:3"},
    "storage": {"checkpoint": {"size": "1Gi"}},
    "runtime": {"warm_start": False},
}
"""Counts to 60 on one to three nodes."""


def write_job(folder: Path, **changes: Any) -> Path:
    """A job file beside the scripts, with these top-level keys changed."""
    for script in SCRIPTS.glob("*.py"):
        shutil.copy(script, folder)
    path = folder / "toy.yaml"
    given = {name: value for name, value in {**JOB, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(given))
    return path


class Run:
    """One run; every process below it carries a mark in its environment."""

    def __init__(self, job: Path, *options: str, seconds: float = PATIENCE_SECONDS) -> None:
        self.folder = job.parent / "work"
        self.output_path = job.parent / "output"
        self.seconds = seconds
        self._mark = f"{job.parent}"
        with self.output_path.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "elastic_infra.cli", "run", str(job), "--workdir", str(self.folder), *options],
                env={**os.environ, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What it has said."""
        return self.output_path.read_text()

    @property
    def claim(self) -> Path:
        """The folder of checkpoints."""
        return next((self.folder / "claims").iterdir())

    def events(self, event: str = "") -> list[Record]:
        """What has happened, all or one kind."""
        if not (self.folder / "events").is_dir():
            return []
        records = Reader([self.folder / "events"]).read()
        return [record for record in records if not event or record.event == event]

    def faults(self) -> list[str]:
        """The faults that came, in order."""
        return [record.text("fault") for record in self.events("fault")]

    def worlds(self) -> list[int]:
        """World size of each generation."""
        sizes = {record.generation: record.whole("world_size") or 0 for record in self.events("workers_started")}
        return [sizes[generation] for generation in sorted(sizes)]

    def is_training(self, nodes: int, after: int = 0) -> bool:
        """Whether so many nodes have done a step in a generation later than this."""
        reporting: dict[int, set[str]] = {}
        for record in self.events("progress"):
            reporting.setdefault(record.generation, set()).add(record.node)
        return any(len(names) == nodes for generation, names in reporting.items() if generation > after)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until it holds."""
        deadline = time.monotonic() + self.seconds
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode} before {what}:\n{self.output}"
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.output}"
            time.sleep(0.05)

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        try:
            return self.process.wait(self.seconds)
        except subprocess.TimeoutExpired as error:
            message = f"it does not end:\n{self.output}"
            raise AssertionError(message) from error

    def finish(self) -> int:
        """Let the counting script end, and wait."""
        (self.claim / "finish").touch()
        return self.wait()

    def interrupt(self) -> None:
        """Send Ctrl-C to the program."""
        self.process.send_signal(signal.SIGINT)

    def alive(self) -> list[int]:
        """Its processes, itself included; zombies have no environment and are not in it."""
        mark = f"{MARK}={self._mark}".encode()
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
        return [pid for pid in pids if mark in _environ(pid)]

    def end(self) -> None:
        """Kill all remaining processes."""
        self.process.kill()
        self.process.wait()
        kill(self.alive())


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
