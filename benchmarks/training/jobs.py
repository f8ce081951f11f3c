"""The arms as jobs on loopback: nodes of one worker each, which can be started and whose workers can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from benchmarks.launcher import arms
from benchmarks.launcher.job import Job, folder, kill
from elastic_infra.launcher import run_dir
from tests.launcher.loopback import tree
from tests.launcher.soak.lines import Lines
from tests.ports import free_port

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
IN_PLACE, RESTART, TORCHFT = ARMS = ("in place", "restart", "torchft")
SHARDED: Final = {"sharded in place": IN_PLACE, "sharded restart": RESTART}
"""The arms of a sharded model, by what they are called beside each other."""
_LIGHTHOUSE: Final = """
import sys, time, torchft.coordination
server = torchft.coordination.LighthouseServer(
    bind=f"127.0.0.1:{sys.argv[1]}", min_replicas=1, join_timeout_ms=1000, heartbeat_timeout_ms=1000
)
time.sleep(86400)
"""
"""torchft's coordinator. It waits for a missing replica for a minute by default and five seconds for its heartbeat: a
second each is as short as the launcher's own waits."""


class Nodes(Protocol):
    """One job of any arm."""

    steps: Lines
    """The journal of its workers."""

    def start_node(self) -> None:
        """Start one more node, or one in place of the worker that was killed."""

    def warm_up(self) -> None:
        """Wait until every node is as it is after a minute of training."""

    def kill_worker(self, pid: int) -> None:
        """Kill a worker; the arm replaces it."""

    def lose_node(self) -> None:
        """Kill every process of the newest node at once."""


class LaunchedNodes:
    """A job under this launcher."""

    def __init__(self, job: Job, steps: Lines) -> None:
        self.steps = steps
        self._job = job

    def start_node(self) -> None:
        """Start one more launcher."""
        self._job.start_node()

    def warm_up(self) -> None:
        """Wait for the fork servers."""
        self._job.warm_up()

    def kill_worker(self, pid: int) -> None:
        """Kill a worker; the launcher replaces it."""
        kill(pid)

    def lose_node(self) -> None:
        """Kill a launcher and all its processes."""
        self._job.lose(self._job.other_node())

    def stop_worker(self, workers: Collection[int]) -> None:
        """Stop that of the workers which is on the oldest node, by a signal that no process can handle."""
        (pid,) = {*tree(self._job.store_host().process.pid)} & {*workers}
        os.kill(pid, signal.SIGSTOP)


class Replicas:
    """A job of torchft, whose killed replicas are started again at once: torchft leaves that to others."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.steps = Lines(path / "journal")
        self._path = path
        self._megabytes = megabytes
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_lighthouse(self) -> None:
        """Start torchft's coordinator, which all replicas ask."""
        self._start(["-c", _LIGHTHOUSE, str(self._port)])

    def start_node(self) -> None:
        """Start one more replica."""
        self._start(["-m", "benchmarks.training.train_torchft", str(self._megabytes)])

    def warm_up(self) -> None:
        """Nothing has to be waited for."""

    def kill_worker(self, pid: int) -> None:
        """Kill a replica and start another one in its place."""
        kill(pid)
        self.start_node()

    def lose_node(self) -> None:
        """Kill the newest replica."""
        lost = self._processes.pop()
        lost.kill()
        lost.wait()

    def end(self) -> None:
        """Kill all processes, the lighthouse too."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, arguments: list[str]) -> None:
        environ = {
            **os.environ,
            "JOURNAL": str(self._path / "journal"),
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{self._port}",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        }
        with (self._path / "log").open("ab") as log:
            process = subprocess.Popen([sys.executable, *arguments], env=environ, stdout=log, stderr=log, cwd=ROOT)
        self._processes.append(process)


@contextmanager
def launched(megabytes: int, arm: str, *options: str) -> Iterator[LaunchedNodes]:
    """A job under this launcher; ``options`` are those of its script."""
    with folder() as path:
        script = (str(HERE / "train.py"), str(path), str(megabytes), arm.replace(" ", "-"), *options)
        launch = arms.Launch("1:3", max_restarts=100)
        with Job(path, arms.OURS, launch, script) as job:
            yield LaunchedNodes(job, Lines(path / "journal"))
    run_dir.cleanup("/dev/shm")  # noqa: S108  what the killed launchers kept there in memory


@contextmanager
def replicas(megabytes: int) -> Iterator[Nodes]:
    """A job of torchft."""
    with folder() as path:
        job = Replicas(path, megabytes)
        try:
            job.start_lighthouse()
            yield job
        finally:
            job.end()


def job(arm: str, megabytes: int) -> AbstractContextManager[Nodes]:
    """A job of an arm without nodes; at the context's end none of its processes is left."""
    return replicas(megabytes) if arm == TORCHFT else launched(megabytes, arm)
