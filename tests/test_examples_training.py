"""Every example's script trains for real, loses workers and nodes on the way, and ends where it should."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.launcher.launched import Launched
from tests.launcher.loopback import Job, kill_tree
from tests.launcher.scenarios.elastic_jobs import QUICK

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Trainer:
    """The script of an example, and how long it has to train."""

    example: str
    length: str
    """The option that says how long it trains."""
    steps: int
    """Steps in one unit of it."""
    enough: int
    """Units after which it is as good as ``good`` says."""
    good: float
    """Per cent right on what it has not seen; a guess is right in 10 (digits) or 17 (the commonest character)."""
    options: tuple[str, ...] = ()
    """More of its options, so that it saves soon."""

    @property
    def script(self) -> str:
        """The path of the script."""
        return str(ROOT / "examples" / self.example / "train.py")

    def command(self, units: int) -> tuple[str, ...]:
        """The script and its options."""
        return (self.script, self.length, str(units), *self.options)


DIGITS = Trainer("quickstart", "--epochs", steps=14, enough=20, good=90.0)
TRAINERS = (
    DIGITS,
    Trainer("gpu-cluster", "--steps", steps=1, enough=100, good=30.0, options=("--save-every", "10")),
    Trainer("kubeflow-imagenet", "--epochs", steps=44, enough=4, good=80.0),
)
ENDLESS = 100_000
PACED = (str(Path(__file__).with_name("paced.py")), "0.1")
"""Before a script: seconds that each of its steps takes longer, while nodes come and go."""

Undisturbed = Callable[[int], str]
"""Epochs to the result of one worker alone."""

each_trainer = pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.example)


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The digits trained by one worker, once for each number of epochs that tests ask for."""
    return functools.cache(
        lambda epochs: last_line(launched(DIGITS, epochs, tmp_path_factory.mktemp("one_worker"), workers=1))
    )


@each_trainer
def test_a_trainer_survives_a_killed_worker_a_stop_and_another_number_of_workers(
    trainer: Trainer, tmp_path: Path
) -> None:
    """What was saved is never lost: each start goes on at a step that was saved, and the last reaches the accuracy."""
    output = after_a_killed_worker_and_a_stop(trainer, tmp_path)
    [begin, again], stop = starts(output), stopped(output)
    units = max(trainer.enough, stop // trainer.steps + 1)
    ended = torchrun(trainer, units, tmp_path, workers=1)

    assert begin == 0
    assert 0 < again <= stop
    assert starts(ended) == [stop]
    assert accuracy(ended) > trainer.good


def test_the_digits_weights_are_the_same_whatever_happened(tmp_path: Path, one_worker: Undisturbed) -> None:
    """Nodes that came and were lost leave the accuracy and the checksum of one worker alone, to the last bit."""
    step = after_a_new_and_a_lost_node(tmp_path)
    epochs = max(DIGITS.enough, step // DIGITS.steps + 1)
    disturbed = torchrun(DIGITS, epochs, tmp_path, workers=2)

    assert starts(disturbed) == [step]
    assert re.fullmatch(r"accuracy 9\d\.\d\d%, weights [0-9a-f]{16}", last_line(disturbed))
    assert one_worker(epochs) == last_line(disturbed)


def test_the_digits_weights_are_the_same_with_any_number_of_workers(tmp_path: Path, one_worker: Undisturbed) -> None:
    """One and three workers: one accuracy and one checksum; the case above has two, beside one."""
    one, three = one_worker(DIGITS.enough), last_line(launched(DIGITS, DIGITS.enough, tmp_path, workers=3))

    assert re.fullmatch(r"accuracy 9\d\.\d\d%, weights [0-9a-f]{16}", one)
    assert three == one


@pytest.mark.slow
def test_the_processes_of_never_stops_stay(tmp_path: Path) -> None:
    """A node joins, a worker is killed, a node is lost: all others train on in the processes in which they began."""
    script = (str(ROOT / "examples/never-stops/train.py"), "--steps", "10000")
    options = ("--max-restarts", "3")
    job = Job(tmp_path, nnodes="1:3", options=options, script=script, environ=environment(tmp_path))
    try:
        job.start_store()
        first, second = job.start_node(*QUICK), job.start_node(*QUICK)
        wait_for(job, "of 2\n", 2)
        newcomer = job.start_node(*QUICK)
        wait_for(job, "of 3\n", 3)
        time.sleep(1.0)  # hundreds of steps with three nodes
        os.kill(int(processes_of(tmp_path, 1)[0]), signal.SIGKILL)
        wait_for(job, "of 3\n", 6)
        pairs = said(job, "of 2\n")
        kill_tree(newcomer)
        wait_for(job, "of 2\n", pairs + 2)
        assert (first.wait(300), second.wait(300)) == (0, 0), job.logs()
    finally:
        job.end()
    logs = [(tmp_path / f"node{index}.log").read_text() for index in range(3)]
    of_three = {step for log in logs for step in re.findall(r"^step (\d+): .* of 3$", log, re.MULTILINE)}

    assert [len(set(processes_of(tmp_path, index))) for index in range(3)] == [1, 2, 1], logs
    assert len(of_three) == 2, logs
    assert float(re.findall(r"step 10000: accuracy ([\d.]+)%", "".join(logs))[0]) > 95


def processes_of(folder: Path, node: int) -> list[str]:
    """The processes that a node's workers said they are."""
    return re.findall(r"process (\d+) is", (folder / f"node{node}.log").read_text())


def after_a_killed_worker_and_a_stop(trainer: Trainer, folder: Path) -> str:
    """What the script says under the launcher: two workers, one killed once there is a checkpoint, then SIGTERM."""
    options = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "1")
    job = Launched(folder, *options, *trainer.command(ENDLESS), environ=environment(folder))
    try:
        job.wait_for(lambda: saved_at(folder), "the first checkpoint")
        os.kill(worker(job), signal.SIGKILL)
        job.wait_for(lambda: len(starts(job.output)) == 2, "the restart")
        before = saved_at(folder)
        job.wait_for(lambda: saved_at(folder) > before, "a checkpoint after it")
        job.process.terminate()
        assert job.wait() == 143, job.output
        return job.output
    finally:
        job.end()


def after_a_new_and_a_lost_node(folder: Path) -> int:
    """The digits' step when all nodes are stopped: there were two of them, then three, then two again."""
    job = Job(folder, nnodes="1:3", script=(*PACED, *DIGITS.command(ENDLESS)), environ=environment(folder))
    try:
        job.start_store()
        job.start_node()
        job.start_node()
        wait_for(job, "with 2 workers", 1)
        newcomer = job.start_node()
        wait_for(job, "with 3 workers", 1)
        kill_tree(newcomer)
        wait_for(job, "with 2 workers", 2)
        for node in job.nodes[:2]:
            node.terminate()
        assert [node.wait() for node in job.nodes[:2]] == [143, 143], job.logs()
    finally:
        job.end()
    return int(torch.load(folder / "saved/digits.pt")["step"])


def wait_for(job: Job, words: str, times: int) -> None:
    """Wait until the workers have said these words so often."""
    job.wait_for(lambda _: said(job, words) == times, seconds=200)


def said(job: Job, words: str) -> int:
    """How often the workers have said these words."""
    return sum((job.folder / f"node{index}.log").read_text().count(words) for index in range(len(job.nodes)))


def environment(folder: Path) -> dict[str, str]:
    """What a pod tells the script and the launcher."""
    return {
        "ELASTIC_INFRA_CHECKPOINT_DIR": str(folder / "saved"),
        "ELASTIC_INFRA_LOG_LEVEL": "WARNING",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


def launched(trainer: Trainer, units: int, folder: Path, workers: int) -> str:
    """What the script prints under the launcher, to its end."""
    return to_its_end("elastic_infra.launcher", trainer, units, folder, workers)


def torchrun(trainer: Trainer, units: int, folder: Path, workers: int) -> str:
    """What the script prints under torchrun itself."""
    return to_its_end("torch.distributed.run", trainer, units, folder, workers)


def to_its_end(module: str, trainer: Trainer, units: int, folder: Path, workers: int) -> str:
    """What the script prints under a launcher that nothing disturbs."""
    command = [sys.executable, "-m", module, "--standalone", f"--nproc-per-node={workers}"]
    environ = {**environment(folder), "PYTHONPATH": str(ROOT), "PATH": "", "TMPDIR": tempfile.gettempdir()}
    (folder / "saved").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [*command, *trainer.command(units)], env=environ, capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def saved_at(folder: Path) -> float:
    """When the newest whole checkpoint was written, be it one file or a folder with its index; 0 without one."""
    files = (*folder.glob("saved/*.pt"), *folder.glob("saved/*/.metadata"))
    return max((file.stat().st_mtime for file in files if file.exists()), default=0)


def worker(job: Launched) -> int:
    """The process of one worker."""
    return next(pid for pid in job.alive() if Path(f"/proc/{pid}/comm").read_text() == "train:1\n")


def starts(output: str) -> list[int]:
    """The steps at which training began."""
    return [int(step) for step in re.findall(r"starting at step (\d+) with", output)]


def stopped(output: str) -> int:
    """The step at which training stopped."""
    [step] = re.findall(r"stopping at step (\d+)", output)
    return int(step)


def accuracy(output: str) -> float:
    """What the last line says, in per cent."""
    reached = re.search(r"(?:accuracy|top-1) ([\d.]+)%", last_line(output))
    assert reached is not None, output
    return float(reached[1])


def last_line(output: str) -> str:
    """The result, without what the launchers said after it."""
    return [line for line in output.splitlines() if line.startswith(("accuracy", "top-1"))][-1]
