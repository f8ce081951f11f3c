"""Nodes and the store as real processes, each in its network, and a kubelet that brings dead nodes back.

A node has its own name, address and /dev/shm, as a pod has. This process must be the sub-reaper of all: processes that
a launcher leaves behind become its children, and are noted as orphans or zombies. The faults are decided elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from elastic_infra.launcher.supervisor.agent_replacement import Replacements
from tests.launcher.launched import command_line, kill
from tests.launcher.loopback import ROOT, signal_tree, tree
from tests.launcher.soak.network import STORE_ADDRESS, STORE_PORT, Network

SCRIPT: Final = Path(__file__).with_name("train.py")
"""Imports torch late: its first workers are started cold, the next ones are forked."""
TORCH_FIRST: Final = Path(__file__).with_name("torch_first.py")
"""The same, forked from the first worker on: torch is imported once a node, however many workers that has."""
BACK_AFTER_SECONDS: Final = 0.5
ORPHAN_TIMEOUT_SECONDS: Final = 10
MAX_RESTARTS: Final = 3
"""The configuration's default; every restart must be earned by a fault, and training goes on between them."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL")
"""For any end of this process no process of the job outlives it: workers die with their launcher in turn."""
_OWN_SHARED_MEMORY: Final = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(parent: int) -> list[int]:
    """The processes that are children of this one, zombies included."""
    return [pid for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()) if _stat(pid)[1] == parent]


def is_zombie(pid: int) -> bool:
    """Whether it has ended and its exit code was not read yet."""
    return _stat(pid)[0] == "Z"


def agent_of(launcher: int) -> int | None:
    """The agent: the first process that the launcher forked without executing anything."""
    command = command_line(launcher)
    agents = [pid for pid in children(launcher) if command_line(pid) == command and command]
    return min(agents, default=None)


def _stat(pid: int) -> tuple[str, int]:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "", 0
    return state, int(parent)


@dataclass
class Node:
    """A place for a pod: the process that runs there, and whether one should run."""

    name: str
    process: subprocess.Popen[bytes] | None = None
    wanted: bool = True
    back_at: float = 0.0
    killed: bool = False
    """Whether a fault killed all its processes, so that their orphans do not count."""
    doomed: bool = False
    """Whether a fault must end the node, however long that takes."""
    replacements: Replacements = field(default_factory=Replacements)
    """The agents of this launcher that faults have killed and its supervisor has replaced."""

    @property
    def runs(self) -> bool:
        """Whether its launcher is there, and will be."""
        return self.process is not None and not self.doomed


class Nodes:
    """All nodes of one job, and its store."""

    def __init__(self, folder: Path, network: Network, *, most: int, workers: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._network = network
        self._most = most
        self._workers = workers
        self._say = say
        self._store: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, Node] = {}
        self.ends: list[tuple[str, int]] = []
        """Node and exit code of every launcher that ended."""
        self.left_behind: list[str] = []
        self.unasked: list[str] = []
        """Launchers that gave up though no fault was to end them."""

    @property
    def wanted(self) -> list[Node]:
        """The nodes that the job should have."""
        return [node for node in self.nodes.values() if node.wanted]

    @property
    def running(self) -> list[Node]:
        """The nodes whose launcher is there."""
        return [node for node in self.nodes.values() if node.runs]

    def start_store(self) -> None:
        """An empty store on the old address."""
        command = [sys.executable, "-m", "elastic_infra.launcher.store", "--port", str(STORE_PORT)]
        self._store = self._start("store", self._network.store, command, {})

    def stop_store(self) -> None:
        """Kill the store, which loses all its content."""
        if self._store is not None:
            self._store.kill()
            self._store.wait()
            self._store = None

    def add(self, name: str) -> None:
        """Start one more node."""
        self.nodes[name] = Node(name)
        self._launch(self.nodes[name])

    def kill(self, node: Node) -> None:
        """Every process of the node, at once."""
        if node.process is not None:
            node.killed = node.doomed = True
            signal_tree(node.process, signal.SIGSTOP)
            signal_tree(node.process, signal.SIGKILL)

    def kill_agent(self, node: Node) -> bool:
        """Kill the agent, which ends the launcher only where too many were replaced; False where there is none now."""
        agent = agent_of(node.process.pid) if node.process is not None else None
        if agent is None:
            return False
        after = node.replacements.next(time.monotonic())
        node.doomed, node.replacements = after is None, after or node.replacements
        os.kill(agent, signal.SIGKILL)
        return True

    def signal_all(self, node: Node, number: signal.Signals) -> None:
        """Send every process of the node a signal."""
        if node.process is not None:
            signal_tree(node.process, number)

    def tick(self, now: float) -> None:
        """Note ended nodes, and start those that should exist."""
        for node in list(self.nodes.values()):
            if node.process is not None and (code := node.process.poll()) is not None:
                self._ended(node, code, now)
            if node.process is None and node.wanted and now >= node.back_at:
                self._launch(node)
            if node.process is None and not node.wanted:
                del self.nodes[node.name]

    def end(self) -> None:
        """Kill all remaining processes."""
        for node in self.nodes.values():
            self.kill(node)
            if node.process is not None:
                node.process.wait()
        self.stop_store()
        kill(tree(os.getpid())[1:])
        self._reap(set())

    def _launch(self, node: Node) -> None:
        command = [
            *("sh", "-c", _OWN_SHARED_MEMORY, "sh", sys.executable, "-m", "elastic_infra.launcher"),
            *("--nnodes", f"1:{self._most}", "--nproc-per-node", str(self._workers)),
            *("--max-restarts", str(MAX_RESTARTS)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{STORE_ADDRESS}:{STORE_PORT}", "--rdzv-id", "soak"),
            *("--rdzv-conf", "is_host=false,last_call_timeout=1,join_timeout=300"),
            *(str(SCRIPT if self._workers == 1 else TORCH_FIRST), str(self._folder)),
        ]
        environ = {
            "ELASTIC_INFRA_NODE_NAME": node.name,
            "ELASTIC_INFRA_EVENTS": str(self._folder / "events"),
            "ELASTIC_INFRA_ORPHAN_TIMEOUT_SECONDS": str(ORPHAN_TIMEOUT_SECONDS),
            "ELASTIC_INFRA_LOG_LEVEL": "DEBUG",
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
        }
        node.process = self._start(node.name, self._network.node(node.name), command, environ)
        node.killed = node.doomed = False
        node.replacements = Replacements()

    def _start(self, name: str, space: str, command: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "ELASTIC_INFRA_"))}
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", space, *_DIES_WITH_US, *command],
                env={**kept, "PYTHONPATH": str(ROOT), **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def _ended(self, node: Node, code: int, now: float) -> None:
        self.ends.append((node.name, code))
        self._say(f"{node.name} ended with {code}")
        if code != 0 and not node.doomed:
            self.unasked.append(f"{node.name} ended with {code}")
        known = {other.process.pid for other in self.nodes.values() if other.process is not None}
        left = self._reap(known)
        if left and not node.killed:
            self.left_behind.append(f"{node.name}, which ended with {code}, left {', '.join(left)}")
        node.process, node.back_at = None, now + BACK_AFTER_SECONDS
        node.wanted = node.wanted and code != 0

    def _reap(self, known: set[int]) -> list[str]:
        """End and reap all children but the known ones; says what each was."""
        if self._store is not None:
            known = known | {self._store.pid}
        left: list[str] = []
        deadline = time.monotonic() + 10
        while strays := [pid for pid in children(os.getpid()) if pid not in known]:
            for pid in strays:
                what = "zombie" if is_zombie(pid) else "orphan"
                left.append(f"{what} {pid} {command_line(pid).replace(bytes(1), b' ').decode(errors='replace')[:120]}")
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            if time.monotonic() > deadline:
                break
        return left
