"""What the tests of frameworks start: a script under a launcher on one node, or a whole job of `elastic-infra run`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.frameworks.storage import Storage
from tests.launcher import launched
from tests.launcher.launched import Launched

SCRIPTS = Path(__file__).parent / "scripts"
STEPS = 600
PATIENCE_SECONDS = 600.0
"""Heavy packages are imported by every worker, in turn, on a machine that may be busy."""

Command = Sequence[str]
"""A script and its arguments, but for where it saves and how long it trains."""


class App:
    """A folder with nothing but the scripts, as an image has it, and what is started there."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder = folder
        self.storage = storage
        self.launches: list[Launched] = []
        self.ours: list[Launched] = []

    def launch(self, module: str, command: Command, **environ: str) -> Launched:
        """Two workers on one node."""
        options = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "3")
        script = (str(self.folder / command[0]), *self.arguments(command))
        return self._start(module, *options, *script, environ=environ)

    def run(self, command: Command, workers: int = 1) -> Run:
        """Two nodes with so many workers each, by `elastic-infra run` on a terminal, where faults can be typed."""
        terminal, keyboard = os.openpty()
        options = ("--workdir", str(self.folder / "work"), "--nodes", "2", "--env", f"STORAGE={self.storage.folder}")
        job = self._start("elastic_infra.cli", "run", str(self._write_job(command, workers)), *options, stdin=keyboard)
        os.close(keyboard)
        return Run(job, terminal, self.folder / "work" / "logs")

    def arguments(self, command: Command) -> list[str]:
        """The arguments with which the script writes below this folder and ends early."""
        return [*command[1:], "--output", str(self.folder / "output"), "--steps", str(STEPS)]

    def _start(
        self, module: str, *arguments: str, environ: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL
    ) -> Launched:
        own = {"STORAGE": str(self.storage.folder), "OMP_NUM_THREADS": "1", **(environ or {})}
        self.launches.append(Launched(self.folder, *arguments, environ=own, module=module, stdin=stdin))
        self.ours += self.launches[-1:] if module.startswith("elastic_infra") else []
        return self.launches[-1]

    def _write_job(self, command: Command, workers: int) -> Path:
        job = {
            "image": "registry.example.com/training:1",
            "script": command[0],
            "args": self.arguments(command),
            "working_dir": "/app",
            "elastic": {"nnodes": "1:3", "max_restarts": 3, "nproc_per_node": workers},
            "env": {"OMP_NUM_THREADS": "1"},
            "storage": {"checkpoint": {"size": "1Gi"}},
        }
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        return path


class Run:
    """A job of `elastic-infra run`."""

    def __init__(self, job: Launched, terminal: int, logs: Path) -> None:
        self._job = job
        self._terminal = terminal
        self._logs = logs

    @property
    def output(self) -> str:
        """What the runner and all nodes have printed."""
        return "\n".join([self._job.output, *(path.read_text(errors="replace") for path in self._logs.glob("*.log"))])

    def type(self, fault: str) -> None:
        """A fault, on the terminal."""
        os.write(self._terminal, f"{fault}\n".encode())

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until it holds; the nodes' output is shown where it never does."""
        try:
            self._job.wait_for(condition, what)
        except AssertionError as error:
            message = f"{error}\n{self.output}"
            raise AssertionError(message) from None

    def wait(self) -> int:
        """The exit code of the launcher, once the launcher has ended."""
        code = self._job.wait()
        os.close(self._terminal)
        return code


def resumed(output: str) -> list[int]:
    """The steps, or epochs, at which a script says that it goes on from a checkpoint, in no order."""
    return [int(number) for number in re.findall(r"resuming from (?:step |epoch |\S*\D)(\d+)$", output, re.MULTILINE)]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """What the scripts read; slow."""
    storage = Storage(tmp_path / "storage")
    storage.folder.mkdir()
    storage.slow_down()
    return storage


@pytest.fixture
def app(tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Where launches are started; nothing of ours may be left behind. Torchrun leaves what a killed worker started."""
    monkeypatch.setattr(launched, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    folder = shutil.copytree(SCRIPTS, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    app = App(Path(folder), storage)
    yield app
    ended = all(launch.process.poll() is not None for launch in app.launches)
    left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for launch in app.ours for pid in launch.alive()}
    for launch in app.launches:
        launch.end()
    assert not ended or not left
