"""Jobs that run on this machine, with real processes and real faults."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.running import FOREVER, Run, write_job
from tests.local.scripts import sums

pytestmark = pytest.mark.timeout(300)
Starter = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Start a run of a job with these changes; when the test is over nothing of it may be left."""
    runs = []

    def starter(*options: str, **changes: Any) -> Run:
        runs.append(Run(write_job(tmp_path, **changes), *options))
        return runs[-1]

    yield starter
    left = {run: run.alive() for run in runs}
    for run in runs:
        run.end()
    assert not any(left.values()), "\n".join(run.output for run in left)


def endless(*options: str) -> tuple[str, ...]:
    """Options of a job that goes on until the test has seen enough."""
    return (*options, "--timeout", "240")


@pytest.mark.parametrize(
    "changes", [{}, {"target": "job"}, {"launcher": {"verify": True}}], ids=["operator", "job", "verified"]
)
def test_success(start: Starter, changes: dict[str, Any]) -> None:
    """Two nodes count together to the end: exit code 0, one generation, the checkpoint in the claim's folder."""
    run = start("--nodes", "2", **changes)
    assert run.wait() == 0, run.output
    assert run.worlds() == [2]
    assert (run.claim / "step").read_text() == "60"
    assert not run.alive()


def test_fewest_nodes_by_default(start: Starter) -> None:
    """Without --nodes the job has its minimum."""
    run = start()
    assert run.wait() == 0, run.output
    assert run.worlds() == [1]


def test_resumes_in_the_same_folder(start: Starter) -> None:
    """A second run in a work folder finds the checkpoint, and its events are its own."""
    assert start().wait() == 0
    run = start()
    assert run.wait() == 0, run.output
    assert len(run.events("job_succeeded")) == 1
    assert not run.events("progress")


def test_what_a_cluster_does(start: Starter) -> None:
    """A killed node comes back, a scale-up joins, a killed worker is restarted, and the store may be lost meanwhile."""
    plan = "0s kill node 1; +0s scale 3; +0s kill worker 2.0; +0s lose rendezvous; +1s scale 2; +1s preempt node 0"
    run = start(*endless("--nodes", "2", "--faults", plan), args=[str(FOREVER)])
    run.wait_for(lambda: len(run.faults()) == 6, "all faults")
    preempted = run.worlds()
    run.wait_for(lambda: run.is_training(2, after=len(preempted)), "training after the last one")
    assert run.finish() == 0, run.output
    assert run.faults() == [part.split(" ", 1)[1] for part in plan.split("; ")]
    assert run.worlds()[0] == 2
    assert 3 in run.worlds()
    told = [record.text("message") for record in run.events("restart") if record.text("cause") == "worker_failed"]
    assert any("on purpose" in message for message in told)
    assert "out of memory" not in " ".join(told)
    assert len(run.events("store_started")) == 2
    assert not run.events("fault_missed")


def test_a_fault_that_cannot_happen(start: Starter) -> None:
    """A plan whose time does not come is no success: the fault is named with the reason, and the exit code is 3."""
    run = start("--faults", "600s kill node 0", args=["1"])
    assert run.wait() == 3, run.output
    assert "A fault did not happen: `kill node 0`: the job ended before its time came." in run.output
    assert [record.text("fault") for record in run.events("fault_missed")] == ["kill node 0"]


def test_hang(start: Starter) -> None:
    """A stopped worker is seen and started again."""
    run = start(*endless("--faults", "0s stop worker 0.0"), args=[str(FOREVER)])
    run.wait_for(lambda: run.is_training(1, after=1), "training after the hang")
    assert run.events("hang_detected")
    assert run.finish() == 0, run.output


def test_ctrl_c_once(start: Starter) -> None:
    """All nodes are preempted: they save, leave, and nothing is left."""
    run = start(*endless("--nodes", "2"), args=[str(FOREVER)])
    run.wait_for(lambda: run.is_training(2), "training")
    run.interrupt()
    assert run.wait() == 130, run.output
    assert [record.whole("exit_code") for record in run.events("node_exited")] == [143, 143]
    assert not run.alive()


def test_ctrl_c_twice(start: Starter) -> None:
    """All processes are killed at any point of the run."""
    run = start(*endless("--nodes", "2", "--faults", "0s stop worker 1.0"), args=[str(FOREVER)])
    run.wait_for(run.faults, "a hang")
    run.interrupt()
    run.wait_for(lambda: run.events("interrupted"), "the first")
    run.interrupt()
    assert run.wait() == 130, run.output
    assert not run.alive()


def test_killed_runner(start: Starter) -> None:
    """SIGKILL to the runner leaves no process, and no scratch folder."""
    run = start(*endless("--nodes", "2"), args=[str(FOREVER)])
    run.wait_for(lambda: run.is_training(2), "training")
    folders = {Path(_environ(pid, "TMPDIR")) for pid in run.alive()}
    scratch = {folder for folder in folders if folder.match("/tmp/*/node-*")}  # the runner's, there for short paths
    assert len(scratch) == 2
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    deadline = time.monotonic() + 60
    while run.alive() or any(folder.exists() for folder in scratch):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _environ(pid: int, name: str) -> str:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except OSError:
        return ""
    return next((entry.partition("=")[2] for entry in entries if entry.startswith(f"{name}=")), "")


def test_failure(start: Starter) -> None:
    """A script that fails beyond every budget fails the job: exit code 1, with the cause; no pod is tried again."""
    run = start(script="missing_module.py", elastic={"nnodes": "1:2", "max_restarts": 0})
    assert run.wait() == 2
    (run.folder.parent / "missing_module.py").write_text("import no_such_module\n")
    run = Run(run.folder.parent / "toy.yaml")
    assert run.wait() == 1, run.output
    assert "No module named 'no_such_module'" in run.output
    assert "which ExitCode does not retry" in run.output
    assert not run.alive()


def test_timeout(start: Starter) -> None:
    """A job that takes too long has failed."""
    run = start("--timeout", "4", args=[str(FOREVER)])
    assert run.wait() == 1, run.output
    assert "it took longer than 4 s" in run.output


def test_single_node_job(start: Starter) -> None:
    """A job of one node is a batch/v1 Job: it comes back when it is preempted, and needs no store."""
    run = start(*endless("--faults", "0s preempt node 0"), args=[str(FOREVER)], elastic={"nnodes": "1"})
    run.wait_for(lambda: len(run.events("node_started")) == 2, "the node again")
    run.wait_for(lambda: run.events("progress")[-1].at > run.events("node_started")[-1].at, "training again")
    assert run.finish() == 0, run.output
    assert not run.events("store_started")


def test_store_on_the_first_node(start: Starter) -> None:
    """With `rendezvous.host: worker0` the first node serves the store; its loss is survived too."""
    run = start(
        *endless("--nodes", "2", "--faults", "0s kill node 0"),
        args=[str(FOREVER)],
        rendezvous={"host": "worker0"},
    )
    run.wait_for(lambda: run.is_training(2, after=1), "training after the loss")
    assert run.finish() == 0, run.output
    assert not run.events("store_started")


def test_what_a_node_finds(start: Starter, tmp_path: Path) -> None:
    """A node gets the operator's variables, fields, folders for its mounts and its own /dev/shm, as in a pod."""
    env = {"DATA": "/data/x", "TOKEN": {"secret": "hf", "key": "token"}, "WHERE": {"field": "spec.nodeName"}}
    (tmp_path / "data").mkdir()
    options = ("--nodes", "2", "--env", "TOKEN=hunter2", "--volume", f"data={tmp_path / 'data'}")
    storage = {
        "checkpoint": {"size": "1Gi"},
        "volumes": [{"name": "data", "claim": "datasets"}],
        "mounts": [{"volume": "data", "mount_path": "/data"}],
    }
    run = start(*options, script="look.py", args=["--from=/data/a", "/app/b"], env=env, storage=storage)
    assert run.wait() == 0, run.output
    notes = [json.loads((run.claim / f"node-{index}").read_text()) for index in range(2)]
    for index, note in enumerate(notes):
        environ = note["environ"]
        assert note["arguments"] == [f"--from={tmp_path}/data/a", f"{tmp_path}/b"]
        assert note["folder"] == str(tmp_path)
        assert Path(note["executable"]).samefile(sys.executable)
        assert environ["DATA"] == f"{tmp_path}/data/x"
        assert environ["TOKEN"] == "hunter2"
        assert environ["PET_NNODES"] == "1:3"
        assert environ["POD_IP"] == "127.0.0.1"
        assert environ["ELASTIC_INFRA_REPLICA_INDEX"] == str(index)
        assert environ["GLOO_SOCKET_IFNAME"] == "lo"
        assert environ["WORLD_SIZE"] == "2"
        if "its own /dev/shm" in run.output:
            assert note["shared"] == [f"look-node-{index}"]
    assert notes[0]["environ"]["HOME"] != notes[1]["environ"]["HOME"]
    assert "hunter2" not in run.output


def test_local_code_is_used_as_it_is(start: Starter, tmp_path: Path) -> None:
    """The script starts in the folder itself, and modules are searched there: nothing is packed or copied."""
    code = tmp_path / "src/deep"
    code.mkdir(parents=True)
    (tmp_path / "src/helper.py").write_text("from pathlib import Path\nHERE = Path(__file__).parent\n")
    (code / "train.py").write_text("import helper, os\n(helper.HERE / 'seen').write_text(os.getcwd())\n")
    run = start(script="deep/train.py", args=[], working_dir=None, workdir={"path": "src"})

    assert run.wait() == 0, run.output
    assert (tmp_path / "src/seen").read_text() == str(tmp_path / "src")
    assert "left out here" not in run.output


def test_memory_limit(start: Starter) -> None:
    """A worker that takes more than its node has ends badly, and is started again."""
    run = start(script="hog.py", args=[], resources={"cpu": 1, "memory": "400Mi"})
    assert run.wait() == 0, run.output
    codes = [record.whole("exit_code") for record in run.events("worker_exited")]
    assert codes in ([-9, 0], [1, 0]), run.output


def test_gpu_job_on_the_cpu(start: Starter) -> None:
    """With --cpu the GPUs are left out, and with them the number of workers that they gave."""
    run = start("--cpu", resources={"gpu": 8})
    assert run.wait() == 0, run.output
    assert run.worlds() == [1]


def test_command(start: Starter) -> None:
    """A job whose workers run a command finds this program's Python as python3."""
    run = start(script=None, command=["python3", "count.py"], args=["5"])
    assert run.wait() == 0, run.output
    assert (run.claim / "step").read_text() == "5"


@pytest.mark.launcher
@pytest.mark.slow
def test_real_training(start: Starter) -> None:
    """With torch: after any changes of nodes the result is that of an undisturbed run, which the demo shows too."""
    plan = "1s kill node 1; +1s scale 3; +1s kill worker 0.0"
    run = start("--nodes", "2", "--faults", plan, script="sums.py", args=[str(FOREVER)], runtime={})
    run.seconds = 280
    run.wait_for(lambda: len(run.faults()) == 3, "all faults")
    run.wait_for(lambda: run.is_training(3, after=len(run.worlds()) - 1), "training after the last one")
    assert run.finish() == 0, run.output
    step, total = map(int, (run.claim / "sums").read_text().split())
    assert total == sums.undisturbed(step)


def test_chaos(start: Starter) -> None:
    """Random faults are survived, every one of them, and what came is what the seed says."""
    survive(start, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 24))
def test_more_chaos(start: Starter, seed: int) -> None:
    """A soak: other seeds, one after the other."""
    survive(start, seed)


def survive(start: Starter, seed: int) -> None:
    """Run one seed to the end of its plan, then let the job succeed."""
    run = start(*endless("--nodes", "2", "--chaos", str(seed)), args=[str(FOREVER)])
    run.wait_for(lambda: run.events("node_started"), "the start")
    planned = [
        entry.split(" ", 1)[1] for entry in run.output.split(f"faults of seed {seed}: ")[1].splitlines()[0].split("; ")
    ]
    run.seconds = 240
    run.wait_for(lambda: len(run.faults()) == len(planned), "all faults")
    assert run.finish() == 0, run.output
    assert run.faults() == planned
    assert not run.alive()
