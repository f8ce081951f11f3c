"""A node is cut off from its store, or paused: the job stays one job, and no node is charged."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.launcher import proxy
from tests.launcher.loopback import TRAIN, Job, signal_tree
from tests.launcher.store.serving import ask

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

QUICK = ("last_call_timeout=1", "join_timeout=120")
QUICK_ORPHANS = {"ELASTIC_INFRA_ORPHAN_TIMEOUT_SECONDS": "3", "ELASTIC_INFRA_WARM_START": "0"}


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Iterator[Job]:
    """Nodes with two workers each."""
    script = (str(TRAIN), str(tmp_path), "100000", "0.05", "sockets")
    job = Job(tmp_path, script=script, options=("--nproc-per-node", "2"))
    yield job
    job.end()


@pytest.mark.parametrize("end", ["FIN", "RST"])
@pytest.mark.parametrize("backend", ["sockets", "none"])
def test_a_middlebox_ends_connections(job: Job, end: proxy.End, backend: str) -> None:
    """A node whose connection a proxy ends connects anew: its generation goes on, with and without collectives."""
    job.script, job.environ = (*job.script[:4], backend), {"ELASTIC_INFRA_WARM_START": "0"}
    job.start_store()
    store = job.port
    with proxy.proxy(store) as middlebox:
        job.start_node(*QUICK)
        job.port = middlebox.port
        job.start_node(*QUICK)
        job.wait_for_world(4)
        for _ in range(3):
            middlebox.cut(end)
            lines = job.wait_for_world(4, time.monotonic() + 1.5)
        assert middlebox.cuts >= 6  # both ends of a connection
        job.end()

    whole = [line for line in lines if line["world"] == 4]  # the first node may have begun alone
    assert len({line["generation"] for line in whole}) == 1
    assert len([line for line in whole if line["event"] == "start"]) == 4


def test_a_store_that_is_away_too_long_is_nobodys_failure(job: Job) -> None:
    """Workers are ended when the store is silent for the orphan timeout; nothing is charged, and all begin again."""
    job.environ = QUICK_ORPHANS
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    before = job.wait_for_world(4)
    assert job.store is not None
    job.store.send_signal(signal.SIGSTOP)
    time.sleep(9)
    back = time.monotonic()
    job.store.send_signal(signal.SIGCONT)
    after = job.wait_for_world(4, back)

    assert {line["restarts"] for line in after} == {0}
    assert after[-1]["generation"] != before[-1]["generation"]
    assert [node.poll() for node in job.nodes] == [None, None]


def test_a_paused_launch_goes_on_where_it_was(job: Job) -> None:
    """A node that was suspended with its store, for longer than the orphan timeout, keeps its workers."""
    job.environ, job.nnodes = QUICK_ORPHANS, "1:1"
    node = job.start_node(*QUICK)
    before = job.wait_for_world(2)
    signal_tree(node, signal.SIGSTOP)
    time.sleep(6)
    signal_tree(node, signal.SIGCONT)
    after = job.wait_for_world(2, time.monotonic() + 3)

    assert {line["pid"] for line in after} == {line["pid"] for line in before}
    assert node.poll() is None


def test_a_node_paused_alone_starts_anew(job: Job) -> None:
    """Its peers went on without it: it ends its workers by itself, is not charged, and is admitted again."""
    job.environ = QUICK_ORPHANS
    job.start_store()
    for _ in range(2):
        job.start_node(*QUICK)
    job.wait_for_world(4)
    signal_tree(job.nodes[1], signal.SIGSTOP)
    job.wait_for_world(2, time.monotonic())
    signal_tree(job.nodes[1], signal.SIGCONT)
    lines = job.wait_for_world(4, time.monotonic())

    assert {line["restarts"] for line in lines} == {0}
    assert [node.poll() for node in job.nodes] == [None, None]


def test_a_killed_agent_leaves_a_farewell(job: Job) -> None:
    """The supervisor of a dead agent ends its workers and says so: its new agent need not wait for the old one.

    Without the farewell the store would know the old node as disconnected: a node that may come back.
    """
    job.environ = {"ELASTIC_INFRA_WARM_START": "0"}
    job.start_store()
    node = job.start_node(*QUICK)
    job.wait_for_world(2)
    killed = time.monotonic()
    os.kill(_agent_of(node.pid), signal.SIGKILL)
    lines = job.wait_for_world(2, killed)
    with socket.create_connection(("127.0.0.1", job.port), timeout=10) as end:
        presences = ask(end, {"op": "hello", "id": 0, "job": "job", "node": ""})["presences"]

    assert {line["restarts"] for line in lines} == {0}
    assert node.poll() is None
    assert isinstance(presences, dict)
    assert sorted(presence[0] for presence in presences.values()) == ["ended", "live"]


def _agent_of(supervisor: int) -> int:
    """The child that was forked and runs no other program; workers were started by exec."""
    children = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    same = pathlib.Path(f"/proc/{supervisor}/cmdline").read_bytes()
    return next(int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == same)
