"""Whatever happens to the warm parent, a restart is at worst a cold one. A small stand-in plays torch here."""

from __future__ import annotations

import json
import os
import pathlib
import signal
from collections.abc import Iterator

import pytest

from tests.launcher.launched import ROOT, Launched

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

TORCH = """
class default_generator:
    seed = staticmethod(lambda: None)
def set_num_threads(number): pass
def get_num_threads(): return 1
"""
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
SOCKET = "import socket\nKEPT = socket.socket()\n"
HANDLER = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n"

SCRIPT = """
import json, os, sys, time
with open("generation-" + os.environ["ELASTIC_INFRA_GENERATION"], "w") as file:
    file.write("started")
while os.environ["ELASTIC_INFRA_GENERATION"] == "1":
    if os.path.exists("go"):
        os._exit(3)
    time.sleep(0.02)
"""


@pytest.fixture
def launch(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Launched]:
    """A launch of one worker whose stand-in for torch has the parameter's code in ``torch._dynamo``."""
    package = tmp_path / "path" / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").write_text(TORCH)
    (package / "distributed" / "__init__.py").touch()
    (package / "_dynamo.py").write_text(getattr(request, "param", ""))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environ = {
        "ELASTIC_INFRA_EVENTS": str(tmp_path / "events"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path / 'path'}",
        "OMP_NUM_THREADS": "1",
    }
    launch = Launched(tmp_path, "--max-restarts", "1", str(script), environ=environ)
    launch.wait_for(lambda: events(launch, "warm_parent"), "the warm parent")
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


def warm_parents(launch: Launched) -> list[int]:
    return [pid for pid in launch.alive() if b"elastic_infra_warm" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_healthy_one_forks(launch: Launched) -> None:
    """The stand-in is enough for a warm start, so that the other cases mean something."""
    assert events(launch, "warm_parent")[0]["ready"] is True
    assert restart(launch) is True


@pytest.mark.parametrize("launch", [THREAD, SOCKET, HANDLER], ids=["thread", "socket", "handler"], indirect=True)
def test_what_leaves_a_trace_is_left_out(launch: Launched) -> None:
    """A module that leaves a thread, a socket or a handler behind is named and dropped; the rest still forks."""
    event = events(launch, "warm_parent")[0]

    assert "left out: torch._dynamo" in str(event["message"])
    assert restart(launch) is True


def test_a_dead_one_is_not_waited_for(launch: Launched) -> None:
    """Without its warm parent a restart is cold."""
    for pid in warm_parents(launch):
        os.kill(pid, signal.SIGKILL)
    launch.wait_for(lambda: len(events(launch, "warm_parent")) == 2, "the loss")

    assert restart(launch) is False


def test_a_frozen_one_is_given_up(launch: Launched) -> None:
    """A warm parent that does not answer is killed, and the worker is started cold, once."""
    for pid in warm_parents(launch):
        os.kill(pid, signal.SIGSTOP)

    assert restart(launch) is False
