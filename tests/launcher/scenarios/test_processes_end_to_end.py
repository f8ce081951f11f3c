"""The process side of a launch on one node, with real processes: signals, stops, clean-up, hangs, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.launcher.launched import BEHAVE, ROOT, Launched
from tests.ports import free_port

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

Start = Callable[..., Launched]
COLD = {"ELASTIC_INFRA_WARM_START": "0"}
SLACK_SECONDS = 4.0
"""Seconds that a busy machine may add to a deadline."""

FILL = """
import os
try:
    while True:
        os.write(1, b"line after line\\n" * 100)
except {caught}:
    pass
"""
"""Writes until the disk is full."""


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts launchers, and ends all their processes after the test."""
    launched: list[Launched] = []

    def begin(*arguments: str, environ: dict[str, str] | None = None, **more: object) -> Launched:
        launched.append(Launched(tmp_path, *arguments, environ={**COLD, **(environ or {})}, **more))  # type: ignore[arg-type]
        return launched[-1]

    yield begin
    for launch in launched:
        launch.end()


REPORT = """
import time
from elastic_infra.training import Progress
progress = Progress()
progress.restored(4)
progress.step(5, samples=80)
progress.snapshot(4)
progress.checkpoint_failed()
progress.checkpoint(5, 1.5)
time.sleep(600)
"""
"""Says where it goes on, makes a step, and saves it the second time."""


def behave(*mode: str) -> tuple[str, ...]:
    return (str(BEHAVE), *mode)


def started(launch: Launched, generation: int, workers: int) -> bool:
    seen = [record for record in launch.journal("started") if record["generation"] == generation]
    return len(seen) == workers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_r1_signal_while_training(start: Start, number: signal.Signals) -> None:
    """R1: a signal while workers run ends the launcher with 128 + n within the grace, and everything with it."""
    launch = start("--nproc-per-node", "2", *behave("wait"))
    launch.wait_for(lambda: started(launch, 1, 2))
    told = time.monotonic()
    launch.process.send_signal(number)

    assert launch.wait() == 128 + number
    assert time.monotonic() - told < 2 + SLACK_SECONDS
    assert launch.alive() == []


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_r1_signal_while_waiting_as_pid_1(start: Start, delay: float) -> None:
    """R1: as PID 1 that waits for a peer, and at once after its handler is live, SIGTERM ends it with 143 in 2 s."""
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    launch = start(
        "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", *behave("wait"),
        prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    )  # fmt: skip
    inner = launch.wait_for(launch.children)[0]
    launch.wait_for(lambda: _catches_term(inner))
    time.sleep(delay)
    told = time.monotonic()
    os.kill(inner, signal.SIGTERM)

    assert launch.wait() == 143
    assert time.monotonic() - told < 2 + SLACK_SECONDS
    assert launch.alive() == []


def _catches_term(pid: int) -> bool:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_r2_a_sibling_gets_the_whole_grace(start: Start) -> None:
    """R2: when a peer failed, a worker that needs most of the grace saves, and its helper lives until then."""
    launch = start("--nproc-per-node", "2", "--shutdown-timeout", "20", *behave("save_on_term", "5"))

    assert launch.wait() == 1
    assert [record["helper_alive"] for record in launch.journal("saved")] == [True]
    assert launch.alive() == []


def test_r2_the_grace_is_a_bound(start: Start) -> None:
    """R2: a worker that ignores SIGTERM is killed when the grace is over."""
    launch = start("--nproc-per-node", "1", "--shutdown-timeout", "2", *behave("ignore_term"))
    launch.wait_for(lambda: launch.journal("ignoring"))
    told = time.monotonic()
    launch.process.terminate()

    assert launch.wait() == 143
    assert time.monotonic() - told < 3 + SLACK_SECONDS
    assert launch.alive() == []


def test_r3_nothing_of_an_old_group_is_left(start: Start) -> None:
    """R3: before the next attempt no process of the old groups lives, in 20 of 20 restarts, own sessions included."""
    launch = start("--nproc-per-node", "2", "--max-restarts", "20", *behave("leave_children", "20"))

    assert launch.wait() == 0, launch.output
    looks = launch.journal("survivors")
    assert max(record["generation"] for record in looks) == 21
    assert [record["alive"] for record in looks if record["alive"]] == []
    assert launch.alive() == []


def test_r4_siblings_are_told_at_once(start: Start) -> None:
    """R4: siblings of a killed worker are signalled in a fraction of the monitor interval, and replaced soon."""
    kills = 15
    launch = start(
        "--nproc-per-node", "2", "--max-restarts", str(kills), "--monitor-interval", "5",
        *behave("trap_term", str(kills)),
    )  # fmt: skip

    assert launch.wait() == 0, launch.output
    died = {record["generation"]: record["at"] for record in launch.journal("dying")}
    told = {record["generation"]: record["at"] for record in launch.journal("told")}
    again = {record["generation"]: record["at"] for record in launch.journal("started")}
    assert len(told) == kills
    assert statistics.median(told[number] - died[number] for number in died) < 1.0
    assert statistics.median(again[number + 1] - died[number] for number in died) < 2.0 + SLACK_SECONDS


def test_r5_a_hang_is_seen_with_stacks_and_restarted(start: Start, tmp_path: pathlib.Path) -> None:
    """R5: a worker that stops reporting steps is shown with every rank's stack and restarted; a slow start is not."""
    launch = start(
        "--nproc-per-node", "2", "--max-restarts", "1", *behave("hang", "4"),
        environ={"ELASTIC_INFRA_HANG_TIMEOUT_SECONDS": "3", "ELASTIC_INFRA_EVENTS": str(tmp_path / "events")},
    )  # fmt: skip

    assert launch.wait() == 0, launch.output
    blocks = [block for block in launch.output.split("Stacks of local rank ") if "Fatal Python error: " in block]
    assert [(block[0], block.count("Fatal Python error: ")) for block in blocks] == [("0", 1), ("1", 1)]
    assert "waits_in_the_collective" in blocks[0]
    assert "waits_for_a_peer_that_is_gone" in blocks[1]
    assert max(record["generation"] for record in launch.journal("started")) == 2
    events = [json.loads(line)["event"] for line in (tmp_path / "events").read_text().splitlines()]
    told = ["launcher_started", "workers_started", "progress", "hang_detected", "restart", "succeeded"]
    assert sorted(told, key=events.index) == told


def forked(launch: Launched) -> set[int]:
    """Children of the supervisor that run its own program: the agent, and the store's server."""
    program = pathlib.Path(f"/proc/{launch.process.pid}/cmdline").read_bytes()
    found = set()
    for pid in launch.children():
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == program:
                found.add(pid)
    return found


def agent_and_store(launch: Launched) -> tuple[int, int]:
    """The agent and the store of a launcher that has just begun to train: the agent was forked first."""
    agent, store = sorted(forked(launch))
    return agent, store


def pids(launch: Launched, generation: int) -> list[int]:
    return [record["pid"] for record in launch.journal("started") if record["generation"] == generation]


def test_r6_a_frozen_agent_is_replaced(start: Start) -> None:
    """R6: with the agent stopped and its workers dead, workers are there again soon; no failure is charged."""
    launch = start("--nproc-per-node", "2", *behave("wait"))
    launch.wait_for(lambda: started(launch, 1, 2))
    agent, _ = agent_and_store(launch)
    _stop_and_kill(agent, pids(launch, 1))
    frozen = time.monotonic()
    launch.wait_for(lambda: started(launch, 2, 2), "new workers")

    assert time.monotonic() - frozen < 15 + SLACK_SECONDS
    assert "has not moved" in launch.output
    assert agent not in launch.alive()
    launch.process.terminate()
    assert launch.wait() == 143
    assert launch.alive() == []


def _stop_and_kill(agent: int, workers: list[int]) -> None:
    os.kill(agent, signal.SIGSTOP)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)


def test_r6_dead_agents_are_replaced_three_times(start: Start) -> None:
    """Each time new workers replace the old; the fourth death ends the launcher with 200, and no process is left."""
    launch = start("--nproc-per-node", "2", *behave("wait"))
    store = 0
    for generation in range(1, 5):
        launch.wait_for(lambda number=generation: started(launch, number, 2), f"generation {generation}")  # type: ignore[misc]
        store = store or agent_and_store(launch)[1]
        assert not set(pids(launch, generation - 1)) & set(launch.alive())
        [agent] = forked(launch) - {store}
        os.kill(agent, signal.SIGKILL)

    assert launch.wait() == 200
    assert launch.output.count("a new agent takes part") == 3
    assert launch.alive() == []


def test_the_dead_man_timer_needs_no_agent(start: Start) -> None:
    """Workers are killed ``orphan_timeout`` after the store's last answer, long before the agent is missed."""
    launch = start("--nproc-per-node", "2", *behave("wait"), environ={"ELASTIC_INFRA_ORPHAN_TIMEOUT_SECONDS": "2"})
    launch.wait_for(lambda: started(launch, 1, 2))
    agent, _ = agent_and_store(launch)
    os.kill(agent, signal.SIGSTOP)

    launch.wait_for(lambda: not set(pids(launch, 1)) & set(launch.alive()), "the workers' end")
    assert agent in launch.alive()
    launch.wait_for(lambda: started(launch, 2, 2), "new workers")
    launch.process.terminate()
    assert launch.wait() == 143
    assert launch.alive() == []


def test_nothing_outlives_a_killed_supervisor(start: Start) -> None:
    """When the supervisor itself is killed, the kernel ends agent, store and workers."""
    launch = start("--nproc-per-node", "2", *behave("wait"))
    launch.wait_for(lambda: started(launch, 1, 2))
    launch.process.kill()
    launch.process.wait()

    deadline = time.monotonic() + 60
    while launch.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert launch.alive() == []


def test_signal_while_torch_is_asked(start: Start, tmp_path: pathlib.Path) -> None:
    """R1: also while torch counts devices in a separate process, SIGTERM ends the launcher with 143."""
    slow = tmp_path / "slow-python"
    slow.write_text("#!/bin/sh\ntouch asked\nexec sleep 600\n")
    slow.chmod(0o755)
    launch = start("--nproc-per-node", "xpu", *behave("wait"), environ={"PYTHON_EXEC": str(slow)})
    launch.wait_for((tmp_path / "asked").exists, "the question")
    launch.process.terminate()

    assert launch.wait() == 143
    assert launch.alive() == []


def test_r6_orphans_and_exit_storms_are_no_fault(start: Start) -> None:
    """R6: workers that leave dozens of orphans and all exit at once end in success."""
    launch = start("--nproc-per-node", "4", *behave("orphan_storm"))

    assert launch.wait() == 0, launch.output
    assert launch.alive() == []


R9 = [
    ("success", ("finish",), 0, ""),
    ("the script raises", ("fail",), 1, "RuntimeError: the data is missing"),
    ("a worker is aborted", ("abort",), 1, "SIGABRT"),
]


@pytest.mark.parametrize(("case", "mode", "code", "says"), R9, ids=[case[0] for case in R9])
def test_r9_exit_codes(
    start: Start, tmp_path: pathlib.Path, case: str, mode: tuple[str, ...], code: int, says: str
) -> None:
    """R9: each end has its code, and a failure its root cause in the termination message."""
    log = tmp_path / "termination-log"
    log.touch()
    launch = start("--nproc-per-node", "2", *behave(*mode), environ={"ELASTIC_INFRA_TERMINATION_LOG": str(log)})

    assert launch.wait() == code, case
    assert says in launch.output
    message = log.read_text()
    assert len(message.encode()) <= 4096
    if code:
        report = json.loads(message)
        assert (report["exit_code"], report["rank"], report["attempt"]) == (report["exit_code"], 0, 0)
        assert says in report["message"]
    else:
        assert message == ""
    assert launch.alive() == []


def test_a_restart_after_a_failure(start: Start) -> None:
    """Within the budget a failing worker costs one restart of the whole group."""
    launch = start("--nproc-per-node", "2", "--max-restarts", "1", *behave("fail_once"))

    assert launch.wait() == 0, launch.output
    assert [record["generation"] for record in launch.journal("started")].count(2) == 2


BAD = [
    ("missing script", ("no_such_script.py",), {}, 2, "does not exist"),
    ("missing program", ("--no-python", "no_such_program"), {}, 2, "was not found"),
    ("unknown option", ("--no-such-option", str(BEHAVE)), {}, 2, "--help"),
    ("bad range", ("--nnodes", "3:1", str(BEHAVE)), {}, 2, "at least 1 and at most the maximum; got 3 and 1"),
    ("bad setting", (str(BEHAVE),), {"ELASTIC_INFRA_WARM_START": "perhaps"}, 2, "ELASTIC_INFRA_WARM_START"),
    ("log folder is a file", ("--log-dir", str(BEHAVE), str(BEHAVE)), {}, 2, "--log-dir"),
]


@pytest.mark.parametrize(("case", "arguments", "environ", "code", "says"), BAD, ids=[case[0] for case in BAD])
def test_bad_input(
    start: Start, case: str, arguments: tuple[str, ...], environ: dict[str, str], code: int, says: str
) -> None:
    """Bad input is one clear line, the documented code, and nothing left running."""
    launch = start(*arguments, environ=environ)

    assert launch.wait() == code, case
    assert says in launch.output
    assert "Traceback" not in launch.output
    assert launch.alive() == []


def test_an_unreadable_script(start: Start, tmp_path: pathlib.Path) -> None:
    """A script without the right to read it is named: 2, nothing left; root has to give up its privilege first."""
    prefix: tuple[str, ...] = ()
    if os.getuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("needs setpriv")
        prefix = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    script = tmp_path / "secret.py"
    script.touch(0o000)
    launch = start(str(script), prefix=prefix)

    assert launch.wait() == 2
    assert f"'{script}' cannot be read by user {os.getuid()}" in launch.output
    assert "Traceback" not in launch.output
    assert launch.alive() == []


def test_a_full_disk_for_events(start: Start) -> None:
    """Events that cannot be written do not stop the training."""
    launch = start(*behave("finish"), environ={"ELASTIC_INFRA_EVENTS": "/dev/full"})

    assert launch.wait() == 0
    assert "Traceback" not in launch.output


def test_a_full_disk_for_logs(start: Start, tmp_path: pathlib.Path) -> None:
    """Logs that cannot be made on a full disk are this node's fault: 200, one line, no process left."""
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    full = tmp_path / "full"
    full.mkdir()
    mount = f'mount -t tmpfs -o nr_inodes=2 tmpfs {full} && exec "$@"'
    launch = start("--log-dir", str(full), *behave("finish"), prefix=("unshare", "-m", "sh", "-c", mount, "sh"))

    assert launch.wait() == 200
    assert "No space left on device" in launch.output
    assert "Traceback" not in launch.output
    assert launch.alive() == []


@pytest.mark.parametrize(("caught", "code"), [("OSError", 0), ("KeyError", 1)], ids=["borne", "fatal"])
def test_a_disk_that_fills_while_training(start: Start, tmp_path: pathlib.Path, caught: str, code: int) -> None:
    """A worker that cannot write fails by itself: the launcher ends with the worker's result and no other error."""
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    small, script = tmp_path / "small", tmp_path / "fill.py"
    small.mkdir()
    script.write_text(FILL.format(caught=caught))
    mount = f'mount -t tmpfs -o size=64k tmpfs {small} && exec "$@"'
    prefix = ("unshare", "-m", "sh", "-c", mount, "sh")
    launch = start("--log-dir", str(small), "--tee", "3", str(script), prefix=prefix)

    assert launch.wait() == code
    assert "line after line" in launch.output
    assert "elastic_infra/launcher" not in launch.output
    assert launch.alive() == []


def test_a_port_in_use_by_something_else(start: Start) -> None:
    """A rendezvous port that another program serves is named, and given up after the join timeout with 200."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        endpoint = f"127.0.0.1:{other.getsockname()[1]}"
        launch = start(
            "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-id", "x", "--rdzv-endpoint", endpoint,
            "--rdzv-conf", "join_timeout=4", *behave("finish"),
        )  # fmt: skip

        assert launch.wait() == 200
    assert endpoint in launch.output
    assert "Traceback" not in launch.output
    assert launch.alive() == []


@pytest.mark.slow
def test_r1_control_torchrun_as_pid_1(tmp_path: pathlib.Path) -> None:
    """R1, control: torchrun as PID 1 that waits for a peer does not end on SIGTERM."""
    pytest.importorskip("torch")
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    port = free_port()
    launch = Launched(
        tmp_path, "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", *behave("wait"),
        module="torch.distributed.run", prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    )  # fmt: skip
    try:
        inner = launch.wait_for(launch.children)[0]
        launch.wait_for(lambda: _listens(port), "the rendezvous")
        os.kill(inner, signal.SIGTERM)

        with pytest.raises(subprocess.TimeoutExpired):
            launch.process.wait(5)
    finally:
        launch.end()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_r6_fifty_healthy_launches(start: Start) -> None:
    """R6: fifty launches with storms of orphans and exits all end in success."""
    for _ in range(50):
        launch = start("--nproc-per-node", "2", *behave("orphan_storm"))

        assert launch.wait() == 0, launch.output
        assert launch.alive() == []


@pytest.mark.slow
@pytest.mark.parametrize(("module", "saved"), [("elastic_infra.launcher", 1), ("torch.distributed.run", 0)])
def test_r2_a_long_grace_when_a_peer_failed(start: Start, module: str, saved: int) -> None:
    """R2: with a grace of 45 s a sibling that needs 35 s saves; torchrun kills it after its fixed 30 s."""
    launch = start(
        "--nproc-per-node", "2", "--shutdown-timeout", "45", *behave("save_on_term", "35"), module=module,
        environ={"ELASTIC_INFRA_GENERATION": "1"},
    )  # fmt: skip

    assert launch.wait() == 1
    assert len(launch.journal("saved")) == saved


def test_what_a_script_reports_is_in_the_metrics(start: Start, tmp_path: pathlib.Path) -> None:
    """Steps, where it went on from, saves that failed, and how long the newest took."""
    (tmp_path / "train.py").write_text(REPORT)
    port = free_port()
    launch = start(str(tmp_path / "train.py"), environ={"ELASTIC_INFRA_METRICS_PORT": str(port)})

    def metrics() -> set[str]:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return set(answer.read().decode().splitlines())
        return set()

    expected = {"step 5", "checkpoint_step 5", "failed_saves_total 1", "save_seconds 1.5", "restored_step 4"}
    expected |= {"samples 80", "memory_step 4"}
    launch.wait_for(lambda: metrics() >= {f"elastic_infra_{line}" for line in expected}, f"{expected} in the metrics")


def test_a_working_folder_that_is_gone_keeps_nobody_from_running(tmp_path: pathlib.Path) -> None:
    """A launch needs only the script's own path."""
    script = tmp_path / "train.py"
    script.write_text("print('ran')\n")
    leave = f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone"
    done = subprocess.run(
        ["sh", "-c", f'{leave} && exec "$@"', "sh", sys.executable, "-m", "elastic_infra.launcher", str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.parametrize("text", ["'x' * (2 << 20)", "'half a character: \\udc80'"])
def test_any_exception_ends_a_job(start: Start, tmp_path: pathlib.Path, text: str) -> None:
    """An exception's text may be megabytes long, or hold what no record can: the job fails with it, and ends."""
    script = tmp_path / "fails.py"
    script.write_text(f"raise ValueError({text})\n")
    log = tmp_path / "log"
    log.touch()
    launch = start(
        "--standalone",
        "--nproc-per-node=2",
        str(script),
        environ={"ELASTIC_INFRA_EVENTS": str(tmp_path / "events"), "ELASTIC_INFRA_TERMINATION_LOG": str(log)},
    )

    assert launch.wait() == 1, launch.output
    assert json.loads(log.read_text())["error"].startswith("ValueError: ")
    events = [json.loads(line)["event"] for line in (tmp_path / "events").read_text().splitlines()]
    assert events[-1] == "failed"


def test_a_standalone_launch_outlives_its_store(start: Start, tmp_path: pathlib.Path) -> None:
    """The store's successor listens at the same port, which was chosen freely."""
    script = tmp_path / "waits.py"
    script.write_text("import os, time\nprint('begun')\nwhile not os.path.exists('go'):\n    time.sleep(0.1)\n")
    launch = start("--standalone", str(script))
    launch.wait_for(lambda: "begun" in launch.output)
    _, store = agent_and_store(launch)
    os.kill(store, signal.SIGKILL)
    launch.wait_for(lambda: len(forked(launch) - {store}) == 2, "another store")
    (tmp_path / "go").touch()

    assert launch.wait() == 0, launch.output
    assert launch.output.count("begun") == 1, "the workers have gone on"
