"""Membership with real launchers and real process groups on loopback."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.launcher.loopback import ROOT, TRAIN, Job, Line, kill_tree, signal_tree

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

SLACK_SECONDS = 10.0
"""Seconds that a busy machine may add to a deadline."""
COLD = {"ELASTIC_INFRA_WARM_START": "0"}
QUICK = ("last_call_timeout=1", "join_timeout=120")


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Iterator[Job]:
    job = Job(tmp_path, script=(str(TRAIN), str(tmp_path), "100000", "0.05", "sockets"))
    yield job
    job.end()


def stop_at(job: Job, steps: int) -> None:
    job.script = (*job.script[:2], str(steps), *job.script[3:])


def use(job: Job, backend: str) -> None:
    job.script = (*job.script[:4], backend)


def since(moment: float, lines: list[Line]) -> list[Line]:
    """The lines after a moment: on a busy machine the first group may have formed in two steps before."""
    return [line for line in lines if float(str(line["time"])) > moment]


def codes(job: Job, seconds: float = 120.0) -> list[int]:
    return [node.wait(seconds) for node in job.nodes]


def test_all_nodes_finish_together(job: Job) -> None:
    """Every launcher exits 0, after every worker has finished."""
    job.nnodes = "2:2"
    stop_at(job, 20)
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)

    assert codes(job) == [0, 0], job.logs()
    assert len([line for line in job.journal() if line["event"] == "finished"]) == 2


@pytest.mark.parametrize("backend", ["sockets", "gloo"])
def test_scale_up_stops_at_one_step(job: Job, backend: str) -> None:
    """Survivors train until the newcomer is ready and all stop at the same step; nothing is repeated or skipped."""
    use(job, backend)
    job.start_store()
    job.start_node(*QUICK)
    job.start_node(*QUICK)
    job.wait_for_world(2)
    grown = time.monotonic()
    job.start_node(*QUICK)
    lines = since(grown, job.wait_for_world(3))

    stopped = {line["step"] for line in lines if line["event"] == "stopped"}
    assert len(stopped) == 1, lines
    first = min(int(str(line["step"])) for line in lines if line["world"] == 3 and line["event"] == "step")
    assert stopped == {first - 1}
    assert {line["restarts"] for line in lines} == {0}


def test_number_of_workers_that_the_script_cannot_use(job: Job) -> None:
    """As nanoGPT asserts: with three workers none starts. The job goes back to two, charged once, and stays there."""
    (job.folder / "refuse-3").touch()
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    job.start_node(*QUICK)
    lines = job.wait_for(lambda lines: any(line["world"] == 3 for line in lines))
    lines = job.wait_for_world(2, after=max(float(str(line["time"])) for line in lines if line["world"] == 3))

    assert len({line["generation"] for line in lines if line["world"] == 3}) == 1
    assert lines[-1]["restarts"] == 1, lines
    assert [node.poll() for node in job.nodes] == [None] * 3, job.logs()
    assert job.said("The script does not start with 3 workers; the job goes on with 2.")
    job.wait_until(lambda: job.said("the nodes that wait do not make up a larger number that may train") > 0)


def test_number_of_workers_that_the_script_cannot_use_and_no_other(job: Job) -> None:
    """Three have trained, one is lost, and two cannot train: the rest wait `join_timeout`, then leave with 200."""
    job.nnodes = "2:3"
    job.start_store()
    for _ in range(3):
        job.start_node("last_call_timeout=60", "join_timeout=10")
    job.wait_for_world(3)
    (job.folder / "refuse-2").touch()
    kill_tree(job.nodes.pop())

    assert codes(job) == [200, 200], job.logs()
    assert len({line["generation"] for line in job.journal() if line["world"] == 2}) == 1
    assert job.said("Waiting: the numbers of workers that the script trains with need other nodes.") > 0, job.logs()
    assert job.said("elasticrun: no generation with enough nodes for 10 s\n") == 2, job.logs()


def test_node_beyond_a_whole_unit_waits(job: Job) -> None:
    """With units of two nodes the third waits; the fourth makes up the second unit, and both come in at one stop."""
    job.nnodes = "2:4"
    job.environ["ELASTIC_INFRA_NODE_UNIT"] = "2"
    job.start_store()
    for _ in range(3):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    job.start_node(*QUICK)
    lines = job.wait_for_world(4)

    assert {line["world"] for line in lines} == {2, 4}
    assert {line["restarts"] for line in lines} == {0}


def test_hang_is_put_down_to_the_rank_that_is_behind(job: Job) -> None:
    """Rank 1 hangs between its collective and its report; rank 0 is a step ahead and waits for it on another node."""
    (job.folder / "hang-1-20").touch()
    job.nnodes = "2:2"
    job.options = ("--max-restarts", "1")
    job.environ["ELASTIC_INFRA_HANG_TIMEOUT_SECONDS"] = "3"
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for(lambda lines: any(line["restarts"] == 1 for line in lines))
    job.wait_until(lambda: job.said("is furthest behind, at step 19.") > 0)

    assert job.said("Rank 1 on ") > 0, job.logs()


def test_scale_down_by_sigterm(job: Job) -> None:
    """The leaving node exits 143, the others go on from the step all stopped at, nothing is charged."""
    job.start_store()
    for _ in range(3):
        job.start_node(*QUICK)
    job.wait_for_world(3)
    told = time.monotonic()
    job.nodes[1].send_signal(signal.SIGTERM)

    assert job.nodes[1].wait(60) == 143
    lines = since(told, job.wait_for_world(2, told))
    assert len({line["step"] for line in lines if line["event"] == "stopped"}) == 1
    assert {line["restarts"] for line in lines} == {0}


@pytest.mark.parametrize("backend", ["sockets", "gloo"])
def test_lost_node_is_no_failure(job: Job, backend: str) -> None:
    """R7: the survivor goes on with world size 1 although no restart is allowed."""
    use(job, backend)
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    killed = time.monotonic()
    kill_tree(job.nodes[0])
    lines = job.wait_for_world(1, killed)

    assert {line["restarts"] for line in lines} == {0}
    assert job.nodes[1].poll() is None


def test_r7_a_loss_that_no_worker_notices_is_seen(job: Job) -> None:
    """R7: without collectives, at default settings, the survivor goes on alone in 5 s; nothing is charged."""
    use(job, "none")
    job.start_store()
    for _ in range(2):
        job.start_node()
    job.wait_for_world(2)
    killed = time.monotonic()
    kill_tree(job.nodes[0])
    lines = job.wait_for_world(1, killed)

    went_on = min(float(str(line["time"])) for line in lines if line["world"] == 1)
    assert went_on - killed < 5 + SLACK_SECONDS
    assert {line["restarts"] for line in lines} == {0}
    assert job.nodes[1].poll() is None


@pytest.mark.parametrize("seconds", [10.0, pytest.param(120.0, marks=pytest.mark.slow)])
def test_r7_control_torchrun_does_not_see_it(job: Job, seconds: float) -> None:
    """R7, control: torchrun's survivor trains on as one of two."""
    pytest.importorskip("torch")
    use(job, "none")
    job.module, job.nnodes, job.environ = "torch.distributed.run", "1:2", {"ELASTIC_INFRA_GENERATION": "1"}
    job.start_node()
    job.wait_until(job.is_served)
    job.start_node()
    job.wait_for_world(2)
    killed = time.monotonic()
    kill_tree(job.nodes[1])
    lines = job.wait_for(lambda lines: float(str(lines[-1]["time"])) > killed + seconds, seconds + 60)

    assert {line["world"] for line in lines if float(str(line["time"])) > killed} == {2}
    assert job.nodes[0].poll() is None


def test_frozen_node_is_dropped_and_comes_back(job: Job) -> None:
    """R7: a node that does not answer for 5 s is gone; thawed it stops its old workers and joins again."""
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    signal_tree(job.nodes[1], signal.SIGSTOP)
    frozen = time.monotonic()
    job.wait_for_world(1, frozen)
    signal_tree(job.nodes[1], signal.SIGCONT)
    thawed = time.monotonic()
    lines = job.wait_for_world(2, thawed)

    assert {line["restarts"] for line in lines} == {0}
    assert [node.poll() for node in job.nodes] == [None, None]


def test_frozen_store_changes_nothing(job: Job) -> None:
    """Nodes wait for a store that does not answer for a while; afterwards the store does not take them for dead."""
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    assert job.store is not None
    frozen = time.monotonic()
    job.store.send_signal(signal.SIGSTOP)
    job.wait_for(lambda _: job.said("does not answer") + job.said("did not answer") > 3)
    job.store.send_signal(signal.SIGCONT)
    back = time.monotonic()
    lines = since(frozen, job.wait_for_world(2, back + 5))

    assert len({line["generation"] for line in lines}) == 1


def test_nodes_may_come_before_the_store(job: Job) -> None:
    """R10: launchers wait for a store that is not there yet and none of them ends."""
    early = [job.start_node(*QUICK, "is_host=false") for _ in range(2)]
    job.wait_until(lambda: job.said("cannot be reached") > 0)
    job.start_store()
    job.wait_for_world(2)

    assert [node.poll() for node in early] == [None, None]


def test_lost_store_host_is_replaced(job: Job) -> None:
    """The node that served the store is lost: a survivor of the same address serves it, and training goes on."""
    first = job.start_node(*QUICK)
    job.wait_for_world(1)
    job.start_node(*QUICK)
    job.start_node(*QUICK)
    job.wait_for(lambda lines: any(line["world"] == 3 and line["event"] == "step" for line in lines), 120)
    killed = time.monotonic()
    kill_tree(first)
    lines = job.wait_for_world(2, killed)

    assert {line["restarts"] for line in lines} == {0}


def test_store_restarted_empty(job: Job) -> None:
    """Workers train on without the store, and no worker restarts when the store comes back empty."""
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    assert job.store is not None
    job.store.kill()
    job.store.wait()
    gone = time.monotonic()
    job.wait_for_world(2, gone)
    job.start_store()
    back = time.monotonic()
    job.wait_for_world(2, back + 3)
    job.start_node(*QUICK)
    lines = since(gone, job.wait_for_world(3))

    assert len({line["generation"] for line in lines}) == 2
    assert len({line["step"] for line in lines if line["event"] == "stopped"}) == 1


def test_foreign_clients_at_the_store_change_nothing(job: Job) -> None:
    """Garbage, an endless line and silence on the store's port: training goes on, and a third node still joins."""
    job.environ = COLD
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    before = job.wait_for_world(2)
    with contextlib.ExitStack() as clients:
        for data in (os.urandom(4096) + b"\n", b'{"op": "hello"}\n', b"GET / HTTP/1.1\r\n\r\n", b"x" * (4 << 20), b""):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", job.port)))
            with contextlib.suppress(ConnectionError):
                client.sendall(data)
        after = job.wait_for_world(2, time.monotonic())
        assert after[-1]["generation"] == before[-1]["generation"]
        job.start_node(*QUICK)
        job.wait_for_world(3)

    assert [node.poll() for node in job.nodes] == [None, None, None]


CLOCK = """
import os, time
real, ahead = time.time, float(os.environ["CLOCK_AHEAD"])
time.time = lambda: real() + ahead
time.time_ns = lambda: int(time.time() * 1e9)
"""
"""Python runs it before a launcher and its children, which then have a clock of their own."""
HOUR = 3600


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(0, HOUR, id="ahead"),
        pytest.param(-HOUR, 0, id="behind", marks=pytest.mark.slow),
    ],
)
def test_late_joiner_after_success(job: Job, first: int, second: int) -> None:
    """A node that comes when the job is over exits 0 without running anything, whatever the clocks of the nodes say.

    The end of a job is forgotten a minute later: by two nodes' clocks it would be an hour old.
    """
    (job.folder / "sitecustomize.py").write_text(CLOCK)
    job.environ["PYTHONPATH"] = os.pathsep.join([str(job.folder), str(ROOT)])
    stop_at(job, 5)
    job.environ["CLOCK_AHEAD"] = "0"
    job.start_store()
    job.environ["CLOCK_AHEAD"] = str(first)
    job.start_node(*QUICK)

    assert codes(job) == [0]
    before = len(job.journal())
    job.environ["CLOCK_AHEAD"] = str(second)
    late = job.start_node(*QUICK)
    assert late.wait(60) == 0
    assert len(job.journal()) == before


def test_the_port_of_rank_0_is_kept_until_rank_0_binds_it(job: Job) -> None:
    """A worker takes seconds to load, and meanwhile no other process can take its port."""
    (job.folder / "loads").touch()
    job.environ = COLD
    job.nnodes = "2:2"
    stop_at(job, 5)
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    port = job.wait_for(lambda lines: len(lines) == 2)[0]["port"]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", int(str(port))))
    (job.folder / "loads").unlink()

    assert codes(job) == [0, 0], job.logs()


@pytest.mark.slow
def test_newcomers_wait_for_a_first_step(job: Job) -> None:
    """A start that takes long is not ended by nodes that come one by one."""
    (job.folder / "loads").touch()
    job.environ = COLD
    job.start_store()
    job.start_node(*QUICK)
    job.wait_for(lambda lines: len(lines) == 1)
    for _ in range(2):
        job.start_node(*QUICK)
    newcomers = [job.folder / f"node{number}.log" for number in (1, 2)]
    job.wait_until(lambda: all("the next planned change takes this node in" in log.read_text() for log in newcomers))
    time.sleep(3.0)
    (job.folder / "loads").unlink()
    lines = job.wait_for_world(3)

    assert [line["world"] for line in lines[:2]] == [1, 1], lines
    assert [line["event"] for line in lines[:2]] == ["start", "step"], lines


@pytest.mark.slow
def test_newcomers_wait_no_longer_than_the_user_says(job: Job) -> None:
    """With ``startup_patience_seconds`` a start that takes longer gives way to more nodes."""
    (job.folder / "loads").touch()
    job.environ = {**COLD, "ELASTIC_INFRA_STARTUP_PATIENCE_SECONDS": "1"}
    job.start_store()
    job.start_node(*QUICK)
    job.wait_for(lambda lines: len(lines) == 1)
    for _ in range(2):
        job.start_node(*QUICK)
    lines = job.wait_for(lambda lines: any(line["world"] == 3 for line in lines))

    assert {line["event"] for line in lines} == {"start"}


EARLY = """
import os, pathlib, sys, time
while os.environ["RANK"] != "0" and not pathlib.Path("go").exists():
    time.sleep(0.02)
if os.environ["RANK"] != "0":
    sys.exit("the collective failed")
"""


@pytest.mark.slow
def test_a_rank_of_another_node_that_ended_early_is_named(job: Job) -> None:
    """Rank 0 exits 0 while rank 1 has steps to make: the message about rank 1 names rank 0."""
    (job.folder / "early.py").write_text(EARLY)
    job.script = (str(job.folder / "early.py"),)
    job.nnodes = "2:2"
    job.start_store()
    for index in ("0", "1"):
        job.environ = {**COLD, "ELASTIC_INFRA_REPLICA_INDEX": index}
        job.start_node(*QUICK)
    job.wait_until(lambda: "state='finished'" in (job.folder / "node1.log").read_text())
    (job.folder / "go").touch()

    assert codes(job) == [1, 1], job.logs()
    assert job.said("Rank 0 had exited with code 0 before") > 0, job.logs()


def test_killed_worker_restarts_and_is_charged(job: Job) -> None:
    """A worker killed by a signal costs one restart on all nodes."""
    job.options = ("--max-restarts", "1")
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    lines = job.wait_for_world(2)
    killed = time.monotonic()
    os.kill(int(str(lines[-1]["pid"])), signal.SIGKILL)
    lines = job.wait_for_world(2, killed + 0.5)

    assert lines[-1]["restarts"] == 1
