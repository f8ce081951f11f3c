"""One job on loopback: its nodes, each a launcher with its own process tree, and the journal of its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.launcher import arms, measure, sockets
from tests.launcher.launched import Launched
from tests.launcher.loopback import kill_tree, tree
from tests.ports import free_port

HERE: Final = Path(__file__).parent
TRAIN: Final = HERE / "train.py"
VARIABLE_FIRST: Final = HERE / "variable_first.py"
TRAIN_HF: Final = HERE / "train_hf.py"
TRAIN_LIGHTNING: Final = HERE / "train_lightning.py"
BEHAVE: Final = HERE / "behave.py"
POLL_SECONDS: Final = 0.05
WARM_SECONDS: Final = 90.0
"""A fork server that is not ready by then is not waited for."""

Line = dict[str, Any]


class Job:
    """A context: at its end no process of the job is left."""

    def __init__(self, folder: Path, arm: arms.Arm, launch: arms.Launch, script: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.arm = arm
        self.launch = launch
        self.nodes: list[Launched] = []
        self.port = free_port()
        self._script = script or (str(TRAIN), str(folder / "checkpoint"))
        self._store: subprocess.Popen[bytes] | None = None
        self._store_output = (folder / "store").open("wb")

    def __enter__(self) -> Job:  # noqa: PYI034  Self needs a newer Python
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.end()
        self.kill_store()
        self._store_output.close()

    def start_store(self) -> None:
        """Start the store in a separate process."""
        command = [
            sys.executable,
            "-m",
            "elastic_infra.launcher.store",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        self._store = subprocess.Popen(command, stdout=self._store_output, stderr=self._store_output)

    def kill_store(self) -> None:
        """It is gone at once, with all it knew."""
        if self._store is not None:
            self._store.kill()
            self._store.wait()

    def start_node(self, *prefix: str) -> Launched:
        """Start one more node's launcher."""
        common = {"JOURNAL": str(self.folder / "journal"), "GLOO_SOCKET_IFNAME": "lo"}
        events = {"ELASTIC_INFRA_EVENTS": str(self._events(len(self.nodes)))}
        arguments = arms.arguments(self.arm, self.launch, self.port)
        node = Launched(
            self.folder,
            *arguments,
            *self._script,
            environ={**common, **events, **self.arm.environ},
            module=self.arm.module,
            prefix=prefix,
        )
        self.nodes.append(node)
        return node

    def store_host(self) -> Launched:
        """The living node that serves the store; the first where none does."""
        living = self._living()
        return next((node for node in living if sockets.listens(tree(node.process.pid), self.port)), living[0])

    def other_node(self) -> Launched:
        """The newest living node that does not serve the store."""
        host = self.store_host()
        return next(node for node in reversed(self._living()) if node is not host)

    def lose(self, node: Launched) -> None:
        """A node is gone at once, with every process it had."""
        kill_tree(node.process)
        node.end()

    def leave(self, node: Launched) -> None:
        """A node is told to end."""
        node.process.send_signal(signal.SIGTERM)

    def journal(self) -> list[Line]:
        """Every whole line so far."""
        path = self.folder / "journal"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def steps(self) -> list[Line]:
        """Every training step so far."""
        return [line for line in self.journal() if line["event"] == "step"]

    def trains(self, world: int, begin: float = 0.0, old: Collection[int] = ()) -> bool:
        """Whether a group of this size trains since then, in processes other than the old ones."""
        return measure.trains(self.steps(), begin, world, old)

    def has_ended(self) -> bool:
        """Whether no launcher is left."""
        return not self._living()

    def warm_up(self) -> None:
        """Wait until every node that lives has its fork server, or knows that it will have none."""
        if self.arm is not arms.OURS:
            return
        await_(lambda: all(self._is_settled(index) for index in range(len(self.nodes))), WARM_SECONDS)

    def events(self, name: str, index: int = 0) -> list[Line]:
        """What a launcher of ours told so far, of one kind; torchrun writes none."""
        path = self._events(index)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = (json.loads(line) for line in lines if line.endswith("\n"))
        return [line for line in whole if line["event"] == name]

    def _living(self) -> list[Launched]:
        return [node for node in self.nodes if node.process.poll() is None]

    def _is_settled(self, index: int) -> bool:
        ended = self.nodes[index].process.poll() is not None
        return ended or bool(self.events("fork_server", index))

    def _events(self, index: int) -> Path:
        return self.folder / f"events-{index}"


@contextmanager
def folder() -> Iterator[Path]:
    """The folder of one job's events, logs and checkpoints."""
    with tempfile.TemporaryDirectory(prefix="bench_", ignore_cleanup_errors=True) as path:
        yield Path(path)


def await_(condition: Callable[[], bool], seconds: float, poll: float = POLL_SECONDS) -> bool:
    """Wait until it holds, for so long at most; whether it does."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(poll)
    return holds


def kill(pid: int) -> None:
    """SIGKILL, for a worker."""
    os.kill(pid, signal.SIGKILL)
