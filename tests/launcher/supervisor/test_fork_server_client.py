"""What the supervisor makes of the fork server's words, and when it has more loaded."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import time
from collections.abc import Iterator

import pytest

from elastic_infra.launcher import ipc
from elastic_infra.launcher.command_line.plan import Entrypoint
from elastic_infra.launcher.run_dir import RunDir
from elastic_infra.launcher.supervisor import fork_server_client
from elastic_infra.launcher.supervisor.fork_requests import Pending
from elastic_infra.launcher.supervisor.fork_server_client import ForkServer, Load

LOAD = Load({}, Entrypoint("script", "train.py"), (), (), comes_first=False)


class Ends:
    """A client, and the fork server's end of its connection."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.run_dir = RunDir(str(folder), "", "", 0)
        os.mkdir(self.run_dir.modules)
        self.client = ForkServer(self.run_dir, LOAD, now=0.0)
        self.client._channel, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.settimeout(0.0)

    def say(self, **message: object) -> object:
        """The fork server says this; what is to be told."""
        self.theirs.send(json.dumps(message).encode())
        return self.client.receive()

    def heard(self) -> list[dict[str, object]]:
        """What it was asked for."""
        found = []
        while True:
            try:
                found.append(json.loads(self.theirs.recv(1 << 16)))
            except BlockingIOError:
                return found

    def record(self, text: str) -> float:
        """A worker imports; when that was."""
        path = pathlib.Path(self.run_dir.modules, "0")
        with path.open("a") as file:
            file.write(text)
        return path.stat().st_mtime


@pytest.fixture
def ends(tmp_path: pathlib.Path) -> Iterator[Ends]:
    ends = Ends(tmp_path)
    yield ends
    ends.theirs.close()
    ends.client.close()


def test_what_is_left_out_is_told_once(ends: Ends) -> None:
    """At first, and again only for a module that is new; a fork server that has loaded nothing more is no news."""
    first = ends.say(ready=3, dropped=["a (reads RANK)"], megabytes=9)
    second = ends.say(ready=5, dropped=["a (reads RANK)", "b (a second thread)"], megabytes=9)
    third = ends.say(ready=5, dropped=["a (reads RANK)", "b (a second thread)"], megabytes=9)

    assert isinstance(first, ipc.ForkServerState)
    assert isinstance(second, ipc.ForkServerState)
    assert (first.left_out, second.left_out) == (("a (reads RANK)",), ("b (a second thread)",))
    assert third == "nothing new"


def test_more_is_loaded_once_the_workers_are_quiet(ends: Ends) -> None:
    """Once for each time that they have imported something, and never before it is ready or while it loads."""
    quiet = ends.record("[]\n") + fork_server_client.QUIET_SECONDS
    ends.client.load_more(100.0, quiet)
    assert ends.heard() == []

    ends.say(ready=3, dropped=[], megabytes=9)
    begin = ends.client._more_at
    ends.client.load_more(begin, quiet - 0.5)
    assert ends.heard() == []
    begin = ends.client._more_at
    ends.client.load_more(begin, quiet)
    ends.client.load_more(begin + 1000, quiet)
    assert ends.heard() == [{"load": True}]

    ends.say(ready=4, dropped=[], megabytes=9)
    begin = ends.client._more_at
    ends.client.load_more(begin, quiet)
    assert ends.heard() == []
    begin = ends.client._more_at
    ends.client.load_more(begin, ends.record("[]\n") + fork_server_client.QUIET_SECONDS)
    assert ends.heard() == [{"load": True}]


def test_it_rests_after_a_load_beside_the_workers_only(ends: Ends) -> None:
    """What the first workers import late is loaded as soon as they are quiet: a restart may come at any moment."""
    ends.say(ready=3, dropped=[], megabytes=9)
    assert ends.client._more_at <= time.monotonic() + fork_server_client.LOOK_SECONDS

    ends.client._more_at = 0.0
    begin = time.monotonic() - 10
    ends.client.load_more(begin, ends.record("[]\n") + fork_server_client.QUIET_SECONDS)
    ends.say(ready=4, dropped=[], megabytes=9)
    assert ends.client._more_at >= begin + 10 * (1 + fork_server_client.PAUSE)


def test_a_worker_that_died_before_its_order_to_run(ends: Ends) -> None:
    """The supervisor goes on: it learns of the end when it reaps the worker."""
    reader, writer = os.pipe()
    os.close(reader)
    ends.client.release(Pending(1, ipc.WorkerSpec(0, (), {}, None, None), writer))

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer)


def test_an_answer_that_comes_behind_the_kill_is_passed_over(ends: Ends) -> None:
    """An agent's end and an answer can be read in one wake-up; the end has dropped the request."""
    reader, writer = os.pipe()
    spec = ipc.WorkerSpec(0, ("train.py",), {}, None, None)
    ends.client.requests.add(0, Pending(1, spec, writer), now=0.0)
    ends.theirs.send(json.dumps({"request": 0, "pid": 5}).encode())
    ends.client.kill()

    assert ends.client.receive() == "nothing new"
    assert os.read(reader, 1) == b"", "the worker waits no longer"
    os.close(reader)
