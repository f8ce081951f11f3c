"""Workers on NCCL that are never restarted: the experiment of ``ElasticGroup.start("nccl", experimental=True)``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from elastic_infra.launcher.workers import channel, progress
from tests.gpu import device as devices
from tests.gpu.conftest import QUICK, SCRIPT, STEP_SECONDS, STEPS, Start
from tests.launcher.loopback import ROOT, Job, Line
from tests.launcher.scenarios.elastic_jobs import assert_as_undisturbed
from tests.ports import free_port

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.launcher,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="this torch cannot reconfigure a group"),
]

KEPT = 28.0
"""What every worker put on its device before it began, added up."""
FREED_SECONDS = 60.0
"""A survivor trains on by then: a tenth of NCCL's own timeout."""


@dataclasses.dataclass(frozen=True)
class Agent:
    """The launcher's agent of one worker, played here, so that one worker on one GPU suffices."""

    job: Job
    """The worker is its only node."""
    connection: channel.Connection

    def send(self, message: channel.Message) -> None:
        """Give the worker an order."""
        assert self.connection.send(message)

    def said(self) -> channel.Message | None:
        """What the worker says next."""
        return self.connection.receive()


Alone = Callable[[str], Agent]


@pytest.fixture
def alone(device: devices.Kind, tmp_path: pathlib.Path) -> Iterator[Alone]:
    """Starts one worker in a mode of the script, which has built its model."""
    server = channel.Server.listen(str(tmp_path / "channel"))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, contextlib.ExitStack() as ended:
        ended.callback(server.close)

        def started(mode: str) -> Agent:
            script = (str(SCRIPT), str(tmp_path), str(STEPS), str(STEP_SECONDS), device, devices.IN_PLACE[device], mode)
            steps_memory = progress.Memory.create(f"{memory}/progress-1", 1)
            ended.callback(steps_memory.close)
            common = {"TORCHELASTIC_RESTART_COUNT": "0", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
            environ = {**os.environ, **common, channel.VARIABLE: server.path, **steps_memory.variable(0)}
            with (tmp_path / "node0.log").open("wb") as log:
                worker = subprocess.Popen([sys.executable, *script], env=environ, stdout=log, stderr=log)
            job = Job(tmp_path, script=script, nodes=[worker])
            ended.callback(job.end)
            connection = connection_of(server, worker, job)
            ended.callback(connection.close)
            agent = Agent(job, connection)
            assert agent.said() == channel.Ready(), job.logs()
            return agent

        yield started


def connection_of(server: channel.Server, worker: subprocess.Popen[bytes], job: Job) -> channel.Connection:
    """The worker's connection, once it is there; its reads wait for two minutes."""
    while (found := server.claim(worker.pid)) is None:
        assert worker.poll() is None, job.logs()
        server.accept()
        time.sleep(0.05)
    found.end.settimeout(120)
    return found


def kill_in_backward(job: Job, victim: object) -> tuple[float, list[Line]]:
    """Kill one of two ranks in its next backward pass; returns when, and the journal once its peer trains alone."""
    told = time.monotonic()
    (job.folder / "victim").write_text(str(victim))
    return told, job.wait_for(lambda lines: any(is_after(line, told, world=1) for line in lines), 180)


def test_a_job_grows_in_the_same_process(start: Start) -> None:
    """One node becomes two. The first worker keeps its process and its device's context, and no step is repeated."""
    job = start(1, largest=2, mode="in-place")
    first = job.journal()[-1]["pid"]
    job.start_node(*QUICK)
    lines = job.wait_for_world(2)

    assert pid_of(lines, 0) == first, job.logs()
    finish(job, {first})
    assert {line["restarts"] for line in job.journal()} == {0}
    assert len({(line["step"], line["rank"], line["pid"]) for line in steps(job)}) == len(steps(job)), "none twice"


def test_a_killed_rank_costs_its_peer_one_step_and_not_its_process(start: Start) -> None:
    """It is killed while gradients are exchanged: the peer's kernel that waits for it ends, and no garbage is trained.

    The peer trains on alone, and together with the killed worker's successor once that is built.
    """
    job = start(2, mode="in-place", hang_timeout_seconds="off")
    lines = job.journal()
    survivor, victim = pid_of(lines, 0), pid_of(lines, 1)
    killed, lines = kill_in_backward(job, victim)
    freed = min(time_of(line) for line in lines if is_after(line, killed, world=1))
    assert freed - killed < FREED_SECONDS, job.logs()
    lines = job.wait_for_world(2, after=time_of(lines[-1]))

    assert pid_of(lines, 0) == survivor, job.logs()
    assert job.said("Workers go on in place") >= 1
    finish(job, {survivor})


def test_the_first_rank_is_killed(start: Start) -> None:
    """It serves the store in which the group was made; its peer becomes the first one, in the same process."""
    job = start(2, mode="in-place", hang_timeout_seconds="off")
    lines = job.journal()
    victim, survivor = pid_of(lines, 0), pid_of(lines, 1)
    _, lines = kill_in_backward(job, victim)
    lines = job.wait_for_world(2, after=time_of(lines[-1]))

    assert pid_of(lines, 0) == survivor, job.logs()
    finish(job, {survivor})


@pytest.mark.parametrize(("mode", "before", "after"), [("rebuilt", 1, 2), ("copied", 2, 4)])
def test_a_sharded_model_grows_in_the_same_processes(start: Start, mode: str, before: int, after: int) -> None:
    """FSDP2 from one rank to two, HSDP from two to four: no step is repeated, and no shard comes from disk."""
    job = start(before, largest=after, mode=mode)
    lines = job.journal()
    kept = {pid_of(lines, rank) for rank in range(before)}
    for _ in range(before, after):
        job.start_node(*QUICK)
    lines = job.wait_for_world(after)

    assert {pid_of(lines, rank) for rank in range(before)} == kept, job.logs()
    finish(job, kept)
    assert {line["restarts"] for line in job.journal()} == {0}
    assert len({(line["step"], line["rank"], line["pid"]) for line in steps(job)}) == len(steps(job)), "none twice"
    assert not job.said("is not used")


def test_a_killed_rank_has_its_shards_on_the_other_node(start: Start) -> None:
    """FSDP2 on two ranks, killed in backward: the peer keeps its process, and has a copy of the lost shards."""
    job = start(2, mode="rebuilt", hang_timeout_seconds="off")
    lines = job.journal()
    survivor, victim = pid_of(lines, 0), pid_of(lines, 1)
    _, lines = kill_in_backward(job, victim)
    lines = job.wait_for_world(2, after=time_of(lines[-1]))

    assert pid_of(lines, 0) == survivor, job.logs()
    finish(job, {survivor})
    assert not job.said("from disk.")


@pytest.mark.parametrize("mode", ["in-place", "rebuilt"])
def test_a_worker_alone_goes_from_one_group_to_the_next(alone: Alone, mode: str) -> None:
    """One GPU: the generation breaks in the middle of a step twice, and the group is made again with one member.

    Its process and what is on its device stay, and the weights are those of a run without breaks.
    """
    agent = alone(mode)
    for generation in (1, 2, 3):
        place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        agent.send(channel.Enter(generation, place))
        assert agent.said() == channel.In(generation), agent.job.logs()
        agent.job.wait_for(lambda lines, now=generation: steps_of(lines, now) >= 3)  # type: ignore[misc]  # bound now
        if generation < 3:
            agent.send(channel.Break(generation))
            assert isinstance(agent.said(), channel.Parked), agent.job.logs()

    finish(agent.job, {agent.job.nodes[0].pid})
    assert {line["pid"] for line in agent.job.journal()} == {agent.job.nodes[0].pid}


@pytest.mark.skipif(devices.chosen() == "cpu", reason="gloo is moved without the experiment")
def test_nothing_is_moved_without_the_experiment(start: Start) -> None:
    """By default workers on NCCL restart, and rank 0 says what would move them."""
    job = start(1)

    assert job.said("The backend nccl cannot be rebuilt in place without experimental=True.") == 1


def finish(job: Job, kept: set[object]) -> None:
    """Train to the end as fast as possible: weights are an undisturbed run's, and these workers live to see it."""
    (job.folder / "hurry").touch()

    assert [node.wait(300) for node in job.nodes] == [0] * len(job.nodes), job.logs()
    assert_as_undisturbed(job)
    left = {line["pid"]: line["kept"] for line in job.journal() if line["event"] == "left" and line["finished"]}
    assert {pid: left.get(pid) for pid in kept} == dict.fromkeys(kept, KEPT), "what is on the device is there"


def steps(job: Job) -> list[Line]:
    """What ranks have noted of their steps."""
    return [line for line in job.journal() if line["event"] == "step"]


def steps_of(lines: list[Line], generation: int) -> int:
    """How many steps were begun in a generation."""
    return sum(line["event"] == "step" and line["generation"] == generation for line in lines)


def is_after(line: Line, moment: float, *, world: int) -> bool:
    """Whether a line is of a step in such a world after this moment."""
    return line["event"] == "step" and line["world"] == world and time_of(line) > moment


def pid_of(lines: list[Line], rank: int) -> object:
    """The process that had this rank last."""
    return next(line["pid"] for line in reversed(lines) if line["rank"] == rank and line["event"] == "step")


def time_of(line: Line) -> float:
    """When it was written: seconds by the machine's clock."""
    return float(str(line["time"]))
