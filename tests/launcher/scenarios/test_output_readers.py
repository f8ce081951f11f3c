"""Readers of a launcher's output that pause or go away: the job does not depend on them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest

from tests.launcher.launched import ROOT

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

TALK = """
for number in range(30_000):
    print("line", number)
"""
PAUSE_SECONDS = 13.0
"""Longer than the watchdog waits for a silent agent."""
IMPATIENT = """
import os, sys
from elastic_infra.launcher import launch, signals
from elastic_infra.launcher.agent import agent
agent.DELIVERY_SECONDS = 0.5
sys.exit(launch.main(sys.argv[1:], os.environ, signals.Signals.install(), agent.run))
"""
"""The launcher, with half a second in place of a minute for output that is not read."""


def launch(folder: pathlib.Path, *arguments: str) -> subprocess.Popen[bytes]:
    script = folder / "talk.py"
    script.write_text(TALK)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ELASTIC_INFRA_WARM_START": "0"}
    command = [sys.executable, "-m", "elastic_infra.launcher", "--nproc-per-node", "2", *arguments, str(script)]
    return subprocess.Popen(command, env=environ, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_a_paused_reader_gets_everything(tmp_path: pathlib.Path) -> None:
    """A job that has succeeded while its output was not read ends with 0, and its reader finds every teed line."""
    launched = launch(tmp_path, "--tee", "3")
    time.sleep(PAUSE_SECONDS)
    output, _ = launched.communicate()

    assert launched.returncode == 0, output[-2000:]
    for rank in range(2):
        mine = [line for line in output.decode().splitlines() if line.startswith(f"[default{rank}]:")]
        assert mine == [f"[default{rank}]:line {number}" for number in range(30_000)]


def test_a_reader_that_goes_away(tmp_path: pathlib.Path) -> None:
    """A reader that has seen enough does not end the job."""
    launched = launch(tmp_path, "--tee", "3", "--log-dir", str(tmp_path / "logs"))
    assert launched.stdout is not None
    launched.stdout.read(100)
    launched.stdout.close()

    assert launched.wait() == 0
    written = sorted((tmp_path / "logs").rglob("stdout.log"))
    assert [len(path.read_text().splitlines()) for path in written] == [30_000, 30_000]


@pytest.mark.parametrize(
    ("end", "code"),
    [pytest.param("", 0, id="success"), pytest.param("raise SystemExit(3)", 1, id="failure", marks=pytest.mark.slow)],
)
def test_a_reader_that_stays_away_keeps_no_node(tmp_path: pathlib.Path, end: str, code: int) -> None:
    """The launcher ends with the job's code all the same, and one line names the files with the unread output."""
    script, stderr = tmp_path / "talk.py", tmp_path / "stderr"
    script.write_text(TALK + end)
    command = [sys.executable, "-c", IMPATIENT, "--nproc-per-node", "2", "--tee", "1", "--log-dir", str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ELASTIC_INFRA_WARM_START": "0"}
    with (
        stderr.open("wb") as errors,
        subprocess.Popen([*command, str(script)], env=environ, stdout=subprocess.PIPE, stderr=errors) as launched,
    ):
        assert launched.wait() == code, stderr.read_text()

    files = sorted(tmp_path.rglob("stdout.log"))
    lines = [line for line in stderr.read_text().splitlines() if "is too slow" in line]
    assert (len(files), len(lines)) == (2, 1)
    assert all(str(path) in lines[0] for path in files)
