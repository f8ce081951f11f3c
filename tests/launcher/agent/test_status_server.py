"""What the status port answers, and that its clients leave the agent its descriptors."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from elastic_infra.launcher.agent import status_server

ROOT = pathlib.Path(__file__).resolve().parents[3]
SNAPSHOT = status_server.Snapshot(
    node="pod-1", run_id="job", phase="monitoring", generation=3, attempt=2, restart_count=1, max_restarts=3,
    membership_changes=3, moves=2, world_size=8, group_rank=1, nodes=("pod-0", "pod-1"), workers_running=4,
    lowest_step=41, highest_step=42, samples=1_234_567, checkpoint_step=None,
    memory_step=41, save_seconds=2.5, failed_saves=1,
    restored_step=40, restored_from="peer", steps_lost=2,
    store_connected=True, fork_server_ready=False, at=100.0,
)  # fmt: skip


@pytest.fixture
def port() -> Iterator[int]:
    """A status port in a separate process that may open 64 files."""
    program = (
        "import resource, time; from elastic_infra.launcher.agent import status_server;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "print(status_server.serve(0, lambda: None), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        assert process.poll() is None
        process.kill()


def answers(port: int) -> bool:
    """Whether a probe is answered; there is no snapshot yet."""
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=20)
    return True


def test_idle_connections_do_not_keep_probes_out(port: int) -> None:
    """Three hundred of them, more than the process has descriptors: the longest-standing give way."""
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(300)]
        assert answers(port)
        ended = [end for end in idle[:100] if end.recv(1) == b""]

    assert len(ended) == 100


def test_an_idle_connection_ends(port: int) -> None:
    """Also where there is room for it."""
    with socket.create_connection(("127.0.0.1", port), timeout=10 * status_server.IDLE_SECONDS) as end:
        assert end.recv(1) == b""


def test_what_is_no_http_costs_nothing(port: int) -> None:
    """Garbage, an endless line and a client that resets leave the port answering."""
    for data in (b"\x00\xff\n\n", b"GET " + b"x" * 100_000, b"GET /status HTTP/1.1\r\n" + b"a: b\r\n" * 1000):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as end, contextlib.suppress(OSError):
            end.sendall(data)
            end.shutdown(socket.SHUT_WR)
            end.recv(1)

    assert answers(port)


def test_metrics() -> None:
    """Prometheus text: known values, each with help and type; what is not known is left out."""
    text = status_server.metrics(SNAPSHOT)

    assert "elastic_infra_step 42\n" in text
    assert 'elastic_infra_phase{phase="monitoring"} 1\n' in text
    assert 'elastic_infra_restored_from{source="peer"} 1\n' in text
    assert "elastic_infra_steps_lost_total 2\n" in text
    assert "elastic_infra_membership_changes_total 3\n" in text
    assert "elastic_infra_moves_total 2\n" in text
    assert "elastic_infra_failed_saves_total 1\n" in text
    assert "elastic_infra_save_seconds 2.5\n" in text
    assert "elastic_infra_memory_step 41\n" in text
    assert "elastic_infra_samples 1234567\n" in text
    assert "checkpoint_step" not in text
    names = [line.split()[0] for line in text.splitlines() if not line.startswith("#")]
    assert all(f"# TYPE {name.partition('{')[0]} " in text for name in names)


@pytest.mark.parametrize(
    ("path", "now", "code"),
    [
        ("/metrics", 101.0, 200),
        ("/status", 101.0, 200),
        ("/healthz", 101.0, 200),
        ("/healthz", 111.0, 503),
        ("/other", 101.0, 404),
    ],
)
def test_answers(path: str, now: float, code: int) -> None:
    """Each path has its answer; an agent that has not moved for ten seconds is not healthy."""
    assert code == status_server.answer(path, SNAPSHOT, now)[0]
    assert status_server.answer(path, None, now)[0] == 503


def test_over_http() -> None:
    """The server answers with the newest snapshot."""
    port = status_server.serve(0, lambda: SNAPSHOT)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60) as response:
        answer = json.load(response)

    assert answer["generation"] == 3
    assert time.monotonic() > 0


def test_a_busy_port_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """Status is a convenience: without its port the launch goes on."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()

        assert status_server.serve(other.getsockname()[1], lambda: SNAPSHOT) == 0
    assert "going on without" in capsys.readouterr().err
