"""Launchers on loopback for tests: each one is a node; the journal of the workers tells what happened."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.launcher.launched import kill
from tests.ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ROOT / "tests" / "launcher" / "scripts" / "train.py"

Line = dict[str, object]


@dataclass
class Job:
    """One elastic job in its folder."""

    folder: pathlib.Path
    nnodes: str = "1:3"
    options: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    store: subprocess.Popen[bytes] | None = None
    host: str = "127.0.0.1"
    """The store's name for launchers."""
    module: str = "elastic_infra.launcher"
    """What runs a node; the control arm's is torchrun's."""

    def start_store(self) -> None:
        """Start the store as a separate process, as in its pod."""
        command = [
            sys.executable,
            "-m",
            "elastic_infra.launcher.store",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        self.store = subprocess.Popen(command, env=self._environ(), stdout=subprocess.DEVNULL)

    def start_node(self, *conf: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """One more launcher; ``conf`` adds to ``--rdzv-conf``, ``prefix`` runs it."""
        conf = (*conf, "is_host=false") if self.store else conf
        command = [
            *(*prefix, sys.executable, "-m", self.module),
            *("--nnodes", self.nnodes, "--rdzv-backend", "c10d", "--rdzv-id", "job"),
            *("--rdzv-endpoint", f"{self.host}:{self.port}"),
            *(("--rdzv-conf", ",".join(conf)) if conf else ()),
            *self.options,
            *self.script,
        ]
        with (self.folder / f"node{len(self.nodes)}.log").open("wb") as log:
            node = subprocess.Popen(command, env=self._environ(), stdout=log, stderr=log, cwd=self.folder)
        self.nodes.append(node)
        return node

    def journal(self) -> list[Line]:
        """Every whole line so far."""
        path = self.folder / "journal"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, what: Callable[[list[Line]], bool], seconds: float = 90.0) -> list[Line]:
        """Wait until the journal shows something."""
        deadline = time.monotonic() + seconds
        while not what(lines := self.journal()):
            if time.monotonic() > deadline:
                message = f"not seen in {seconds} s; logs:\n{self.logs()}\njournal ends:\n{lines[-12:]}"
                raise AssertionError(message)
            time.sleep(0.05)
        return lines

    def wait_until(self, what: Callable[[], bool], seconds: float = 90.0) -> None:
        """Wait until something holds that no journal shows."""
        self.wait_for(lambda _: what(), seconds)

    def is_served(self) -> bool:
        """Whether a process listens where the store is."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait_for_world(self, world: int, after: float = 0.0, seconds: float = 90.0) -> list[Line]:
        """Wait until all ranks of a group of this size have made three steps later than ``after``."""

        def is_there(lines: list[Line]) -> bool:
            steps = [x for x in lines if x["event"] == "step" and x["world"] == world and float(str(x["time"])) > after]
            return any(
                len({(x["rank"], x["step"]) for x in steps if x["generation"] == generation}) >= 3 * world
                for generation in {x["generation"] for x in steps}
            )

        return self.wait_for(is_there, seconds)

    def logs(self) -> str:
        """What the launchers and workers printed."""
        return "\n".join(f"{p.name}: {p.read_text(errors='replace')[-3000:]}" for p in self.folder.glob("node*.log"))

    def said(self, text: str) -> int:
        """How often launchers and workers printed this, from the start."""
        return sum(path.read_text(errors="replace").count(text) for path in self.folder.glob("node*.log"))

    def end(self) -> None:
        """Kill all remaining processes."""
        for node in self.nodes:
            kill_tree(node)
        if self.store is not None:
            self.store.kill()
            self.store.wait()

    def _environ(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "ELASTIC_INFRA_"))}
        return {
            **kept,
            "PYTHONPATH": path,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "ELASTIC_INFRA_LOG_LEVEL": "DEBUG",
            **self.environ,
        }


def tree(pid: int) -> list[int]:
    """A process and all its descendants, the top first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = pathlib.Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def signal_tree(node: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to every process of a node."""
    kill(tree(node.pid), number)


def kill_tree(node: subprocess.Popen[bytes]) -> None:
    """A node is lost: all its processes at once."""
    if node.poll() is None:
        signal_tree(node, signal.SIGSTOP)
        signal_tree(node, signal.SIGKILL)
    node.wait()
