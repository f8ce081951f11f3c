"""Records real event files: launchers on loopback, with faults done to them.

``python -m tests.timeline.record SCENARIO FOLDER`` writes ``FOLDER/*.jsonl``. The committed recordings were made by it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from elastic_infra.launcher.event_log import utc
from tests.launcher.loopback import ROOT, TRAIN, Job, kill_tree


class Recording:
    """One job whose nodes write their events into a folder; faults are written as the local runner writes them."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.folder = folder
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, index: int) -> None:
        """Start a node, or start it anew."""
        name = f"node-{index}"
        events = {"ELASTIC_INFRA_EVENTS": str(self.folder / f"{name}.jsonl"), "ELASTIC_INFRA_NODE_NAME": name}
        self.job.environ |= {**events, "ELASTIC_INFRA_REPLICA_INDEX": str(index)}
        self.nodes[index] = self.job.start_node()
        self.tell("node_started", name, pid=self.nodes[index].pid)

    def kill_worker(self, rank: int) -> None:
        """SIGKILL the newest worker of this rank."""
        self.tell("fault", f"node-{rank // 2}", fault=f"kill worker {rank // 2}.{rank % 2}", origin="plan")
        os.kill(self.worker(rank), signal.SIGKILL)

    def worker(self, rank: int) -> int:
        """The process that has this rank."""
        return int(str([line["pid"] for line in self.job.journal() if line["rank"] == rank][-1]))

    def kill_node(self, index: int) -> None:
        """Kill every process of a node at once."""
        self.tell("fault", f"node-{index}", fault=f"kill node {index}", origin="plan")
        kill_tree(self.nodes[index])
        self.tell("node_exited", f"node-{index}", signal=9, verdict="retry")

    def tell(self, event: str, node: str, **fields: object) -> None:
        """A line of the runner's own."""
        head = {"time": utc(time.time()), "monotonic": round(time.monotonic(), 6), "event": event, "node": node}
        with (self.folder / "runner.jsonl").open("a") as file:
            file.write(json.dumps({**head, "generation": 0, "attempt": 0, **fields}) + "\n")

    def wait_for_steps(self, number: int) -> None:
        """Wait until the job has made so many steps more."""
        before = max((int(str(line["step"])) for line in self.job.journal()), default=-1)
        self.job.wait_for(lambda lines: max(int(str(line["step"])) for line in lines) >= before + number)

    def wait_for_the_end(self) -> None:
        """Wait until every node has ended by itself."""
        for index, node in self.nodes.items():
            self.tell("node_exited", f"node-{index}", exit_code=node.wait(120), verdict="done")
        self.tell("job_succeeded", "")


def faults(record: Recording) -> None:
    """Two nodes, a third joins, a worker is killed, a node is killed and comes back."""
    record.start(0)
    record.start(1)
    record.job.wait_for_world(4)
    record.wait_for_steps(150)
    record.start(2)
    record.job.wait_for_world(6)
    record.wait_for_steps(150)
    record.kill_worker(1)
    record.wait_for_steps(150)
    record.kill_node(1)
    time.sleep(2.0)
    record.start(1)
    record.wait_for_the_end()


def quiet_faults(record: Recording) -> None:
    """What no runner tells: a stopped worker (a hang), a preempted node, a lost node that stays away."""
    for index in range(3):
        record.start(index)
    record.job.wait_for_world(6)
    record.wait_for_steps(30)
    os.kill(record.worker(1), signal.SIGSTOP)
    record.job.wait_for_world(6, after=time.monotonic() + 3)
    record.wait_for_steps(30)
    record.nodes[2].terminate()
    record.job.wait_for_world(4)
    record.wait_for_steps(30)
    record.start(2)
    record.job.wait_for_world(6, after=time.monotonic())
    record.wait_for_steps(20)
    kill_tree(record.nodes.pop(2))
    record.wait_for_the_end()
    (record.folder / "runner.jsonl").unlink()


SCENARIOS: dict[str, Callable[[Recording], None]] = {"faults": faults, "quiet_faults": quiet_faults}


def main(scenario: str, folder: Path, steps: str = "700", backend: str = "gloo") -> None:
    """Run one scenario to its end."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        script = (str(TRAIN), scratch, steps, "0.1", backend)
        options = ("--nproc-per-node", "2", "--max-restarts", "5")
        environ = {"ELASTIC_INFRA_SHUTDOWN_GRACE_SECONDS": "10"}
        job = Job(Path(scratch), "2:3", options=options, script=script, environ=environ)
        job.start_store()
        try:
            SCENARIOS[scenario](Recording(job, folder))
        finally:
            job.end()
    for file in folder.iterdir():
        file.write_text(file.read_text().replace(f"{ROOT}/", "").replace(f"{folder}/", ""))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve(), *sys.argv[3:])
