"""A job that grows and shrinks while its workers keep their processes."""

from __future__ import annotations

import pathlib
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from tests.launcher.launched import kill
from tests.launcher.loopback import Job, Line, kill_tree, signal_tree, tree
from tests.launcher.scenarios.elastic_jobs import QUICK, assert_as_undisturbed, assert_none_twice, elastic_job, finish
from tests.launcher.soak_in_place.soak import is_alive
from tests.ports import free_port

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

LOADER_LOOKS_SECONDS = 5.0
"""A process that loads data looks so often whether its worker lives: ``MP_STATUS_CHECK_INTERVAL`` of torch."""


@pytest.fixture(params=["in-place"])
def job(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    job = elastic_job(tmp_path, seconds=0.1, durable_steps=100, mode=request.param)
    yield job
    job.end()


RECONFIGURED = pytest.param(
    "reconfigured",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="this torch cannot reconfigure"),
    ],
)
both_ways = pytest.mark.parametrize("job", ["in-place", RECONFIGURED], indirect=True)


@both_ways
def test_a_job_grows_to_three_nodes_and_loses_one_in_the_same_processes(job: Job) -> None:
    """A node is lost and a worker killed while gradients are exchanged: the others keep their pids.

    They make steps until a newcomer's or a successor's worker is built, so that they never wait for it, and repeat no
    step for a newcomer. Weights are those of an undisturbed worker, and every sample was trained on exactly once. The
    metrics count the changes.
    """
    job.start_store()
    firsts = set()
    port = free_port()
    for world in (1, 2, 3):
        job.environ["ELASTIC_INFRA_METRICS_PORT"] = str(port if world == 1 else 0)
        job.start_node(*QUICK)
        lines = job.wait_for_world(world)
        built = max(at(line) for line in lines if line["event"] == "built")
        before = [line for line in lines if line["event"] == "step" and line["world"] == world - 1]
        assert world == 1 or at(before[-1]) > built, job.logs()
        firsts.add(pid_of(lines, 0))
    first, second = (pid_of(lines, rank) for rank in (0, 1))
    assert firsts == {first}, job.logs()
    assert_none_twice(lines)
    assert moves(port) == 2, "two nodes have come"
    kill_tree(job.nodes[2])
    lines = job.wait_for_world(2, after=float(str(lines[-1]["time"])))
    assert {line["pid"] for line in lines[-2:]} == {first, second}, job.logs()
    (job.folder / "building").write_text("3")
    (job.folder / "victim").write_text(str(second))
    begun = len(lines)
    lines = job.wait_for_world(1, after=at(lines[-1]))
    assert not [line for line in lines[begun:] if line["event"] == "built"], "a step with one worker fewer comes first"
    lines = job.wait_for_world(2, after=at(lines[-1]))
    assert {line["event"] for line in lines[begun:]} >= {"built"}, job.logs()
    finish(job)
    assert pid_of(job.journal(), 0) == first, "rank 0 has kept its process to the end"
    assert job.said("Workers go on in place") >= 1
    assert job.said("steps back while its workers start") >= 1


@pytest.mark.slow
def test_a_stream_is_read_on_in_the_same_processes(tmp_path: pathlib.Path) -> None:
    """Two nodes of two workers; a worker is killed in the middle of a step, a node joins, and one is lost.

    Each worker reads the stream again from its beginning when the nodes change: every sample counts once, and weights
    are those of an undisturbed worker.
    """
    job = elastic_job(tmp_path, seconds=0.1, durable_steps=100, mode="streamed", steps=400)
    job.options = (*job.options, "--nproc-per-node", "2")
    try:
        job.start_store()
        for _ in range(2):
            job.start_node(*QUICK)
        lines = job.wait_for_world(4)
        survivors, lost = {pid_of(lines, rank) for rank in (0, 1)}, node_of(job, pid_of(lines, 2))
        (job.folder / "victim").write_text(str(pid_of(lines, 3)))
        lines = job.wait_for_world(4, after=at(job.wait_for_world(2, after=at(lines[-1]))[-1]))
        job.start_node(*QUICK)
        lines = job.wait_for_world(6, after=at(lines[-1]))
        kill_tree(lost)
        lines = job.wait_for_world(4, after=at(lines[-1]))
        assert survivors < {pid_of(lines, rank) for rank in range(4)}, job.logs()
        (job.folder / "hurry").touch()

        assert [node.wait(200) for node in job.nodes if node is not lost] == [0, 0], job.logs()
        assert_as_undisturbed(job)
    finally:
        job.end()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 8])
def test_workers_in_the_middle_of_a_long_step_keep_their_processes(tmp_path: pathlib.Path, workers: int) -> None:
    """A node is lost while those of the other compute for eight seconds, as in each step: these are waited for."""
    job = elastic_job(tmp_path, seconds=8.0, durable_steps=100, mode="in-place", steps=30)
    job.options = (*job.options, "--nproc-per-node", str(workers))
    try:
        job.start_store()
        for _ in range(2):
            job.start_node(*QUICK)
        lines = job.wait_for_world(2 * workers)
        survivors = [pid_of(lines, rank) for rank in range(workers)]
        kill_tree(node_of(job, pid_of(lines, workers)))
        lines = job.wait_for_world(workers, after=at(lines[-1]))
        assert [pid_of(lines, rank) for rank in range(workers)] == survivors, job.logs()
        (job.folder / "hurry").touch()

        assert node_of(job, survivors[0]).wait(200) == 0, job.logs()
        assert_as_undisturbed(job)
    finally:
        job.end()


@pytest.mark.slow
@both_ways
def test_the_siblings_of_a_killed_worker_keep_their_processes(job: Job) -> None:
    """One of three nodes' six workers is killed: four train on until its successor is built, then six again."""
    job.options = (*job.options, "--nproc-per-node", "2")
    job.start_store()
    for _ in range(3):
        job.start_node(*QUICK)
    lines = job.wait_for_world(6)
    killed, others = pid_of(lines, 4), {pid_of(lines, rank) for rank in (0, 1, 2, 3, 5)}
    (job.folder / "building").write_text("3")
    (job.folder / "victim").write_text(str(killed))
    lines = job.wait_for_world(4, after=at(lines[-1]))
    without = {pid_of(lines, rank) for rank in range(4)}
    lines = job.wait_for_world(6, after=at(lines[-1]))
    assert without < others, job.logs()
    assert len({pid_of(lines, rank) for rank in range(6)} & others) == 5, job.logs()
    finish(job)


@pytest.mark.slow
def test_of_sixteen_workers_fourteen_keep_their_processes(tmp_path: pathlib.Path) -> None:
    """Two nodes of eight: two siblings are killed at once, then their node is lost, and another one comes."""
    job = elastic_job(tmp_path, seconds=0.3, durable_steps=100, mode="in-place", steps=400)
    job.options = (*job.options, "--nproc-per-node", "8")
    try:
        job.start_store()
        for _ in range(2):
            job.start_node(*QUICK)
        lines = job.wait_for_world(16)
        before = [pid_of(lines, rank) for rank in range(16)]
        kill([int(str(before[rank])) for rank in (9, 12)])
        lines = job.wait_for_world(16, after=at(lines[-1]))  # the other node's eight may make a step or two alone
        assert len({pid_of(lines, rank) for rank in range(16)} & set(before)) == 14, job.logs()
        lost = node_of(job, before[8])
        kill_tree(lost)
        lines = job.wait_for_world(8, after=at(lines[-1]))
        job.start_node(*QUICK)
        lines = job.wait_for_world(16, after=at(lines[-1]))
        assert {pid_of(lines, rank) for rank in range(8)} == set(before[:8]), job.logs()
        (job.folder / "hurry").touch()

        assert [node.wait(200) for node in job.nodes if node is not lost] == [0, 0], job.logs()
        assert_as_undisturbed(job)
    finally:
        job.end()


@both_ways
def test_a_job_changes_its_size_and_no_survivor_its_process(job: Job) -> None:
    """One node becomes four, two of which are lost at once, then three: one killed in mid all-reduce, one frozen.

    The frozen one comes back once it is thawed, with another worker, because its old one has the state of then. No
    survivor's pid changes, weights are those of an undisturbed worker, and every sample was trained on exactly once.
    """
    job.nnodes = "1:4"
    job.start_store()
    job.start_node(*QUICK)
    alone = pid_of(job.wait_for_world(1), 0)
    for _ in range(3):
        job.start_node(*QUICK)
    lines = job.wait_for_world(4)
    survivors = {rank: pid_of(lines, rank) for rank in (0, 1)}
    assert survivors[0] == alone, job.logs()
    dismissed = pid_of(lines, 2)
    killed, frozen = (node_of(job, pid_of(lines, rank)) for rank in (3, 2))
    waiting = job.folder / "waiting"
    waiting.write_text(str(pid_of(lines, 3)))
    job.wait_until(lambda: not waiting.read_text())
    signal_tree(frozen, signal.SIGSTOP)
    kill_tree(killed)
    lost = time.monotonic()
    lines = job.wait_for_world(2, lost)
    assert {rank: pid_of(lines, rank) for rank in (0, 1)} == survivors, job.logs()
    signal_tree(frozen, signal.SIGCONT)
    lines = job.wait_for_world(3, time.monotonic())
    assert {rank: pid_of(lines, rank) for rank in (0, 1)} == survivors, job.logs()
    assert pid_of(lines, 2) != dismissed, job.logs()
    assert not is_alive(int(str(dismissed))), job.logs()

    finish(job)
    assert [node.wait(60) for node in job.nodes if node is not killed] == [0, 0, 0], job.logs()
    assert {rank: pid_of(job.journal(), rank) for rank in survivors} == survivors, "they have kept theirs to the end"


def test_a_job_whose_nodes_are_all_told_to_end_loses_no_step(job: Job) -> None:
    """Each node may think that the other goes on: the state is saved all the same, and a new job begins behind it."""
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    job.wait_for(lambda lines: len(lines) >= 20)
    for node in job.nodes:
        node.send_signal(signal.SIGTERM)
    assert [node.wait(60) for node in job.nodes] == [143, 143], job.logs()
    before = job.journal()
    made = max(int(str(line["step"])) for line in before if line["event"] == "step")
    for _ in range(2):
        job.start_node(*QUICK)
    lines = job.wait_for(lambda lines: any(line["event"] == "step" for line in lines[len(before) :]))
    first = next(line for line in lines[len(before) :] if line["event"] == "step")

    assert made < 100, "the first snapshot that the script asks for is that of step 100"
    assert first["step"] == made + 1, job.logs()


@pytest.mark.slow
def test_the_last_node_saves_while_it_waits_for_a_lost_one(job: Job) -> None:
    """One node is too few to train, and its workers have the state: they save before the node ends."""
    job.nnodes = "2:3"
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(2)
    job.wait_for(lambda lines: len(lines) >= 20)
    kill_tree(job.nodes[1])
    job.wait_until(lambda: job.said("draining -> parked") > 0)
    job.nodes[0].send_signal(signal.SIGTERM)

    assert job.nodes[0].wait(60) == 143, job.logs()
    begun = max(int(str(line["step"])) for line in job.journal() if line["event"] == "step")
    saved = [int(path.name.removeprefix("step-")) for path in (job.folder / "checkpoints").glob("step-*")]
    assert len(saved) == 1, job.logs()
    assert saved[0] in {begun - 1, begun}, "the step that the loss broke, or the one before it"


@pytest.mark.slow
def test_after_two_changes_without_a_step_all_workers_start_anew(job: Job) -> None:
    """Of four nodes one after another is lost in the first step of its group: the last worker is not kept."""
    job.nnodes = "1:4"
    job.start_store()
    for _ in range(4):
        job.start_node(*QUICK)
    lines = job.wait_for_world(4)
    last, *lost = (pid_of(lines, rank) for rank in range(4))
    survivor, waiting = node_of(job, last), job.folder / "waiting"
    waiting.write_text(str(lost[-1]))
    for after, pid in zip([*lost[-2::-1], None], reversed(lost), strict=True):
        job.wait_until(lambda: not waiting.read_text())
        time.sleep(0.5)  # the others have come to the exchange in which they wait for the one that waits
        if after is not None:
            waiting.write_text(str(after))
        kill_tree(node_of(job, pid))
    lines = job.wait_for_world(1, after=time.monotonic())
    assert pid_of(lines, 0) != last, job.logs()
    (job.folder / "hurry").touch()

    assert survivor.wait(200) == 0, job.logs()
    assert_as_undisturbed(job)
    assert job.said("They are not kept, because 2 changes in place in a row made no step."), job.logs()
    assert {line["restarts"] for line in job.journal()} == {0}, "lost nodes are no failures"


@pytest.mark.slow
@both_ways
def test_workers_meet_again_at_a_port_given_by_hand(job: Job) -> None:
    """Of two workers on one node each is killed once: rank 0 serves the port in both groups, or its successor does."""
    job.options = (*job.options, "--rdzv-backend", "static", "--nnodes", "1", "--nproc-per-node", "2")
    job.start_node()
    lines = job.wait_for_world(2)
    for rank in (1, 0):
        kept, generation = pid_of(lines, 1 - rank), max(int(str(line["generation"])) for line in lines)
        (job.folder / "victim").write_text(str(pid_of(lines, rank)))
        lines = job.wait_for(lambda lines, last=generation: has_stepped(lines, last + 1))  # type: ignore[misc]
        assert pid_of(lines, 1 - rank) == kept, job.logs()
    finish(job)
    assert job.said("Workers go on in place") >= 2


@pytest.mark.slow
def test_an_error_of_one_workers_script_replaces_that_worker(job: Job) -> None:
    """Its node steps back and comes again; the workers of the other nodes keep their processes, and one is charged."""
    stop_at(job, 500)
    job.start_store()
    for _ in range(3):
        job.start_node(*QUICK)
    lines = job.wait_for_world(3)
    raised, others = pid_of(lines, 1), {pid_of(lines, rank) for rank in (0, 2)}
    raise_soon(job, lines, raised)
    lines = job.wait_for_world(2, after=at(lines[-1]))
    assert {pid_of(lines, rank) for rank in (0, 1)} == others, job.logs()
    lines = job.wait_for_world(3, after=at(lines[-1]))
    new = pid_of(lines, 2)
    assert ({pid_of(lines, rank) for rank in (0, 1)}, new in {raised, *others}) == (others, False), job.logs()
    (job.folder / "hurry").touch()

    assert [node.wait(200) for node in job.nodes] == [0, 0, 0], job.logs()
    assert_as_undisturbed(job)
    assert {line["restarts"] for line in lines if line["pid"] == new} == {1}
    assert job.said("ValueError: raised for the test") > 0


@pytest.mark.slow
def test_an_error_of_all_scripts_starts_all_workers_anew(job: Job) -> None:
    """In one step: no worker is left that could park. One failure is charged, and the state comes from memory."""
    stop_at(job, 500)
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    lines = job.wait_for_world(2)
    raised = {pid_of(lines, rank) for rank in (0, 1)}
    raise_soon(job, lines, *raised)
    lines = job.wait_for(lambda lines: len({line["pid"] for line in lines if line["event"] == "step"}) >= 4)
    lines = job.wait_for_world(2, after=at(lines[-1]))
    new = {pid_of(lines, rank) for rank in (0, 1)}
    assert not new & raised, job.logs()
    (job.folder / "hurry").touch()

    assert [node.wait(200) for node in job.nodes] == [0, 0], job.logs()
    assert_as_undisturbed(job)
    lines = job.journal()
    assert {line["restarts"] for line in lines if line["pid"] in new} == {1}
    assert {line["restored"] for line in lines if line["event"] == "left"} == {"memory"}


@pytest.mark.slow
def test_connections_that_end_cost_one_restart_and_no_process(job: Job) -> None:
    """Of three workers one loses all its connections in the middle of a step: nobody died, and one failure counts."""
    job.start_store()
    for _ in range(3):
        job.start_node(*QUICK)
    lines = job.wait_for_world(3)
    before = {rank: pid_of(lines, rank) for rank in range(3)}
    cut = job.folder / "cut"
    cut.write_text(str(before[1]))
    job.wait_until(lambda: not cut.read_text())
    lines = job.wait_for_world(3, after=time.monotonic())
    assert {rank: pid_of(lines, rank) for rank in range(3)} == before, job.logs()
    finish(job)

    assert [line["restarts"] for line in job.journal()[-3:]] == [1, 1, 1], job.logs()


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "workers"), [(1, 2), (2, 1)])
def test_a_step_that_always_fails_ends_the_job(job: Job, nodes: int, workers: int) -> None:
    """As it ends a job whose workers restart: with 93, once two workers have come to that step three times."""
    job.nnodes = str(nodes)
    job.options = (*job.options, "--nproc-per-node", str(workers))
    (job.folder / "raising").write_text("20")
    job.start_store()
    for _ in range(nodes):
        job.start_node(*QUICK)

    assert [node.wait(120) for node in job.nodes] == [93] * nodes, job.logs()
    lines = job.journal()
    assert max(line["step"] for line in lines if line["event"] == "step") == 19  # type: ignore[type-var]  # a number
    assert len({line["pid"] for line in lines if line["event"] == "built"}) == 6, job.logs()


@pytest.mark.slow
def test_a_node_whose_worker_fails_in_each_step_is_left_out(job: Job) -> None:
    """It has two tries, and leaves with 200; the other one trains on without it.

    So it does after a failure of its own, since when it has made progress: three failures are not of one step then.
    """
    job.start_store()
    job.start_node(*QUICK)
    lines = job.wait_for_world(1)
    kill([int(str(pid_of(lines, 0)))])
    job.wait_for_world(1, after=time.monotonic())
    job.environ["RAISES"] = "1"
    job.start_node(*QUICK)

    assert job.nodes[1].wait(120) == 200, job.logs()
    (job.folder / "hurry").touch()
    assert job.nodes[0].wait(200) == 0, job.logs()
    assert_as_undisturbed(job)
    assert job.said("elasticrun: the workers of this node alone keep failing") == 1, job.logs()


@pytest.mark.slow
def test_the_node_that_serves_the_store_is_lost(job: Job) -> None:
    """Another one serves it; the workers of both survivors break the step, keep their processes and train on."""
    job.start_node(*QUICK)
    job.wait_for_world(1)
    for _ in range(2):
        job.start_node(*QUICK)
    lines = job.wait_for_world(3)
    survivors = [pid_of(lines, rank) for rank in (1, 2)]
    assert pid_of(lines, 0) in tree(job.nodes[0].pid), job.logs()
    kill_tree(job.nodes[0])
    lines = job.wait_for_world(2, after=time.monotonic())
    assert [pid_of(lines, rank) for rank in (0, 1)] == survivors, job.logs()
    (job.folder / "hurry").touch()

    assert [node.wait(200) for node in job.nodes[1:]] == [0, 0], job.logs()
    assert_as_undisturbed(job)


@pytest.mark.slow
def test_a_stopped_worker_is_replaced_and_holds_no_other_up_for_long(job: Job) -> None:
    """Of three workers one is stopped and one killed: the stopped one does not park, and is killed and replaced.

    The third keeps its process. That a worker is stopped is no hang while its generation ends.
    """
    job.start_store()
    for _ in range(3):
        job.start_node(*QUICK)
    lines = job.wait_for_world(3)
    kept, killed, stopped = (int(str(pid_of(lines, rank))) for rank in range(3))
    kill([stopped], signal.SIGSTOP)
    kill([killed])
    lines = job.wait_for_world(3, after=time.monotonic())
    pids = {pid_of(lines, rank) for rank in range(3)}
    assert (pid_of(lines, 0), pids & {killed, stopped}) == (kept, set()), job.logs()
    assert not is_alive(stopped)
    (job.folder / "hurry").touch()

    assert [node.wait(200) for node in job.nodes] == [0, 0, 0], job.logs()
    assert_as_undisturbed(job)
    assert job.said("state T") == 0, job.logs()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_worker_whose_loaders_live_holds_nobody_up(job: Job, rank: int) -> None:
    """The processes that load its data have its connections open, so that peers see no end of these for seconds.

    Its peers make their next step before such a process would notice the death by itself, and it ends as well.
    """
    job.environ["LOADERS"] = "2"
    job.start_store()
    for _ in range(3):
        job.start_node(*QUICK)
    lines = job.wait_for_world(3)
    victim, others = pid_of(lines, rank), {pid_of(lines, other) for other in range(3) if other != rank}
    loaders = tree(int(str(victim)))[1:]
    assert len(loaders) == 2, job.logs()
    kill([int(str(victim))])
    died = time.monotonic()
    lines = job.wait_for_world(2, after=died)
    last = max(line["generation"] for line in lines if at(line) < died)  # type: ignore[type-var]  # all are numbers
    begun = [line for line in lines if line["event"] == "step" and line["generation"] != last and at(line) > died]
    second = next(line for line in begun if line["step"] != begun[0]["step"])

    assert {line["pid"] for line in begun} >= others, job.logs()
    assert at(second) - died < LOADER_LOOKS_SECONDS, job.logs()
    job.wait_until(lambda: not any(is_alive(pid) for pid in loaders), 3 * LOADER_LOOKS_SECONDS)
    (job.folder / "hurry").touch()
    assert job.nodes[0].wait(200) == 0, job.logs()
    assert_as_undisturbed(job)


@pytest.mark.slow
def test_the_port_of_a_killed_rank_0_is_free_though_its_loaders_live(job: Job) -> None:
    """They have inherited the socket on which it served the store; its successor serves the next one at that port."""
    job.environ["LOADERS"] = "2"
    job.options = (*job.options, "--rdzv-backend", "static", "--nnodes", "1", "--nproc-per-node", "2")
    job.start_node()
    lines = job.wait_for_world(2)
    kept, generation = pid_of(lines, 1), max(int(str(line["generation"])) for line in lines)
    kill([int(str(pid_of(lines, 0)))])
    lines = job.wait_for(lambda lines: has_stepped(lines, generation + 1))
    (job.folder / "hurry").touch()

    assert pid_of(lines, 1) == kept, job.logs()
    assert job.nodes[0].wait(200) == 0, job.logs()
    assert_as_undisturbed(job)


def moves(port: int) -> int:
    """How many changes in place the metrics of a node count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("elastic_infra_moves_total "))


def stop_at(job: Job, steps: int) -> None:
    """Have the training end sooner."""
    job.script = (*job.script[:2], str(steps), *job.script[3:])


def raise_soon(job: Job, lines: list[Line], *pids: object) -> None:
    """Have these workers raise a ValueError, all in the same step."""
    step = 10 + max(int(str(line["step"])) for line in lines if line["event"] == "step")
    draft = job.folder / "raising.draft"
    draft.write_text(" ".join(map(str, (step, *pids))))
    draft.rename(job.folder / "raising")


def has_stepped(lines: list[Line], generation: int) -> bool:
    """Whether both ranks have made a step in this generation."""
    return {line["rank"] for line in lines if (line["event"], line["generation"]) == ("step", generation)} == {0, 1}


def pid_of(lines: list[Line], rank: int) -> object:
    """The process that had this rank in a group last."""
    return next(line["pid"] for line in reversed(lines) if line["rank"] == rank and line["event"] != "built")


def node_of(job: Job, pid: object) -> subprocess.Popen[bytes]:
    """The node whose worker this is."""
    return next(node for node in job.nodes if pid in tree(node.pid))


def at(line: Line) -> float:
    """When it was written: seconds by the machine's clock."""
    return float(str(line["time"]))


def test_a_worker_that_a_program_starts_trains_as_one_that_cannot_be_moved(tmp_path: pathlib.Path) -> None:
    """The launcher knows the program and not the worker: a node that joins restarts them, and a line says why."""
    job = elastic_job(tmp_path, seconds=0.1, durable_steps=5, mode="in-place", steps=150)
    script, job.script = job.script, ("sh", "-c", f"{shlex.join([sys.executable, *job.script])}; exit $?")
    job.options = (*job.options, "--no-python")
    try:
        job.start_store()
        for world in (1, 2):
            job.start_node(*QUICK)
            job.wait_for_world(world)
        job.script = script
        finish(job)
        assert job.said("a program that did, which cannot be moved. Workers restart when nodes come or go.")
    finally:
        job.end()
