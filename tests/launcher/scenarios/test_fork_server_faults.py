"""Any fault of the fork server costs at worst a cold start. A small stand-in plays torch here."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest

from elastic_infra.launcher import ipc
from elastic_infra.launcher.command_line.plan import Entrypoint
from elastic_infra.launcher.run_dir import RunDir
from elastic_infra.launcher.supervisor import fork_server_client
from tests.launcher.launched import ROOT, Launched, command_line, kill

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

TORCH = """
class default_generator:
    seed = staticmethod(lambda: None)
"""
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
SOCKET = "import socket\nKEPT = socket.socket()\n"
HANDLER = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n"

SCRIPT = """
import json, os, sys, time
import dependency  # once a script has imported what it needs, the fork server starts: in 2 s and not in 30
with open("generation-" + os.environ["ELASTIC_INFRA_GENERATION"], "w") as file:
    file.write("started")
while os.environ["ELASTIC_INFRA_GENERATION"] == "1":
    if os.path.exists("go"):
        os._exit(3)
    time.sleep(0.02)
"""


ENDLESS = "import time\ntime.sleep(600)\n"
"""Only the fork server imports ``torch._dynamo`` here."""


FAILS_AT_ONCE = """
import torch
import os, time
if os.environ["RANK"] == "0" and os.environ["ELASTIC_INFRA_GENERATION"] == "1":
    os._exit(3)
time.sleep(1)
"""


def started(tmp_path: pathlib.Path, dynamo: str, script_text: str, workers: int = 1) -> Launched:
    """A launch whose stand-in for torch has this code in ``torch._dynamo``."""
    package = tmp_path / "path" / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").write_text(TORCH)
    (package / "distributed" / "__init__.py").touch()
    (package / "_dynamo.py").write_text(dynamo)
    (tmp_path / "path" / "dependency.py").touch()
    script = tmp_path / "train.py"
    script.write_text(script_text)
    environ = {
        "ELASTIC_INFRA_EVENTS": str(tmp_path / "events"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path / 'path'}",
        "OMP_NUM_THREADS": "1",
    }
    options = ("--nproc-per-node", str(workers), "--max-restarts", "1")
    return Launched(tmp_path, *options, str(script), environ=environ)


@pytest.fixture
def loading(tmp_path: pathlib.Path) -> Iterator[Launched]:
    """A launch of a program that imports torch, whose fork server never comes to an end of its imports."""
    launch = started(tmp_path, ENDLESS, f"import torch\n{SCRIPT}\ndef unused():\n    torch.optim\n")
    launch.wait_for(lambda: events(launch, "workers_started") and fork_servers(launch), "the fork server")
    yield launch
    launch.end()


@pytest.fixture
def launch(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Launched]:
    """A launch of a program that imports no torch, with the parameter's code in ``torch._dynamo``."""
    launch = started(tmp_path, getattr(request, "param", ""), SCRIPT)
    launch.wait_for(lambda: events(launch, "fork_server"), "the fork server")
    yield launch
    launch.end()


def events(launch: Launched, name: str) -> list[dict[str, object]]:
    path = launch.output_path.parent / "events"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == name]


def restart(launch: Launched) -> bool:
    """Have the worker fail once; whether its replacement was forked."""
    (launch.output_path.parent / "go").touch()
    assert launch.wait() == 0, launch.output
    assert launch.alive() == []
    started = events(launch, "worker_started")
    assert [event["generation"] for event in started] == [1, 2]
    return bool(started[1]["warm"])


def fork_servers(launch: Launched) -> list[int]:
    """The one that forks and those that wait for it: the death of one ends those below it."""
    return [pid for pid in launch.alive() if b"elastic_infra_fork_server" in command_line(pid)]


def test_a_healthy_one_forks(launch: Launched) -> None:
    """The stand-in is enough for a warm start, so that the other cases mean something."""
    assert events(launch, "fork_server")[0]["ready"] is True
    assert restart(launch) is True


@pytest.mark.parametrize("launch", [THREAD, SOCKET, HANDLER], ids=["thread", "socket", "handler"], indirect=True)
def test_what_leaves_a_trace_is_left_out(launch: Launched) -> None:
    """A module that leaves a thread, a socket or a handler behind is named and dropped; the rest still forks."""
    event = events(launch, "fork_server")[0]

    assert "left out: torch._dynamo" in str(event["message"])
    assert restart(launch) is True


def test_a_dead_one_is_not_waited_for(launch: Launched) -> None:
    """Without its fork server a restart is cold."""
    kill(fork_servers(launch))
    launch.wait_for(lambda: len(events(launch, "fork_server")) == 2, "the loss")

    assert restart(launch) is False


def test_a_frozen_one_is_given_up(launch: Launched) -> None:
    """A fork server that does not answer is killed, and the worker is started cold, once."""
    kill(fork_servers(launch), signal.SIGSTOP)

    assert restart(launch) is False


@pytest.mark.parametrize("workers", [4, 8, 24])
def test_a_failure_while_others_are_forked_costs_one_restart(tmp_path: pathlib.Path, workers: int) -> None:
    """Rank 0 ends before the fork server has come to the last rank: the answers that come later start nothing."""
    launch = started(tmp_path, "", FAILS_AT_ONCE, workers)
    try:
        assert launch.wait() == 0, launch.output
        assert launch.alive() == []
        second = [event for event in events(launch, "worker_started") if event["generation"] == 2]
        assert sorted(str(event["local_rank"]) for event in second) == sorted(map(str, range(workers)))
    finally:
        launch.end()


def test_a_program_that_imports_torch_waits_for_it(loading: Launched) -> None:
    """No worker is started cold while the fork server imports what the worker would import as well."""
    time.sleep(2.0)

    assert events(loading, "worker_started") == []


def test_one_that_dies_while_it_loads_is_not_waited_for(loading: Launched) -> None:
    """The workers that waited are started cold, once each."""
    kill(fork_servers(loading))
    loading.wait_for(lambda: events(loading, "worker_started"), "a cold start")

    assert restart(loading) is False


def test_a_signal_while_it_loads_ends_the_launch(loading: Launched) -> None:
    """No worker waits for an import any more."""
    loading.process.send_signal(signal.SIGTERM)

    assert loading.wait() == 143
    assert events(loading, "worker_started") == []
    assert loading.alive() == []


def test_an_endless_import_is_given_up(tmp_path: pathlib.Path) -> None:
    """A fork server that comes first is waited for so long and no longer, and only while a worker waits."""
    load = fork_server_client.Load({}, Entrypoint("script", "train.py"), ("torch",), (), comes_first=True)
    parent = fork_server_client.ForkServer(RunDir(str(tmp_path), "", "", 0), load, now=100.0)
    late = 100.0 + ipc.LOAD_SECONDS

    assert not parent.is_late(late)
    assert parent.request(1, ipc.WorkerSpec(0, (), {}, None, None))
    assert not parent.is_late(late - 0.1)
    assert parent.is_late(late)
    assert [each.spawn for each in parent.take_held()] == [1]
    assert not parent.request(2, ipc.WorkerSpec(0, (), {}, None, None))
