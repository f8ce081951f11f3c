"""Nodes may start in any order: a node waits for the store, whatever answers at its address before."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
import socket
import time
from collections.abc import Iterator

import pytest

from tests.launcher.loopback import TRAIN, Job, kill_tree

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(600)]

STORE_HOST = "worker-0.job"
SLACK_SECONDS = 10.0
"""Seconds that a busy machine may add to a deadline."""


@dataclasses.dataclass(frozen=True)
class Spans:
    """How long a peer meets each state of affairs, in seconds."""

    no_name: float
    closed: float
    busy: float
    away: float
    """Between the loss of the node that serves the store and its return."""


FULL = Spans(no_name=30, closed=60, busy=5, away=30)
TENTH = Spans(no_name=3, closed=6, busy=0.5, away=3)


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Iterator[Job]:
    job = Job(tmp_path, script=(str(TRAIN), str(tmp_path), "100000", "0.05", "sockets"), host=STORE_HOST)
    yield job
    job.end()


class Names:
    """A hosts file that only this test's launchers see, each in a mount namespace."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._hosts = folder / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n")
        switch = folder / "nsswitch.conf"
        switch.write_text("hosts: files\n")
        binds = f"mount --bind {self._hosts} /etc/hosts && mount --bind {switch} /etc/nsswitch.conf"
        self.prefix = ("unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh")

    def add(self, name: str) -> None:
        """From now on the name is this machine."""
        with self._hosts.open("a") as file:
            file.write(f"127.0.0.1 {name}\n")


@contextlib.contextmanager
def something_else(port: int) -> Iterator[None]:
    """Another program has the port and says nothing."""
    with socket.create_server(("127.0.0.1", port)):
        yield


def endure(job: Job, seconds: float) -> None:
    """Wait for so long; no launcher may end meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert [node.poll() for node in job.nodes] == [None] * len(job.nodes), job.logs()
        time.sleep(0.05)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
@pytest.mark.parametrize("spans", [TENTH, pytest.param(FULL, marks=pytest.mark.slow)], ids=["tenth", "full"])
def test_r10_a_peer_may_start_long_before_the_store(job: Job, tmp_path: pathlib.Path, spans: Spans) -> None:
    """R10: name unknown, port closed, port busy: no launcher ends; a lost store host is joined within 30 s."""
    names = Names(tmp_path)
    job.environ = {"ELASTIC_INFRA_WARM_START": "0"}
    peer = job.start_node("is_host=false", prefix=names.prefix)
    job.wait_until(lambda: job.said("cannot be resolved") > 0)
    endure(job, spans.no_name)
    names.add(STORE_HOST)
    endure(job, spans.closed)
    with something_else(job.port):
        endure(job, spans.busy)
    host = job.start_node("is_host=true", prefix=names.prefix)
    job.wait_for_world(2)
    kill_tree(host)
    job.nodes.remove(host)
    endure(job, spans.away)
    back = time.monotonic()
    job.start_node("is_host=true", prefix=names.prefix)
    lines = job.wait_for_world(2, back)

    again = min(float(str(line["time"])) for line in lines if line["world"] == 2 and float(str(line["time"])) > back)
    assert again - back < 30 + SLACK_SECONDS
    assert {line["restarts"] for line in lines} == {0}
    assert peer.poll() is None


@pytest.mark.slow
def test_r10_control_torchrun_gives_up(job: Job) -> None:
    """R10, control: torchrun's peer ends with an error when no node serves the store for its ``read_timeout``."""
    pytest.importorskip("torch")
    job.module, job.host = "torch.distributed.run", "127.0.0.1"

    assert job.start_node("is_host=false").wait(300) == 1
