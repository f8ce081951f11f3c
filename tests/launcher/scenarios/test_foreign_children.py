"""Children that the launcher did not start: those of the shell that became the launcher."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.launcher.launched import BEHAVE, ROOT

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

SIDECAR = """
sleep 600 & echo $! > child
(setsid sh -c 'sleep 600 & echo $! > orphan') &
while [ ! -s child ] || [ ! -s orphan ]; do sleep 0.05; done
exec "$@"
"""


def test_a_sidecar_lives_through_restart_and_end(tmp_path: pathlib.Path) -> None:
    """A child from before ``exec`` and its kin survive a worker's failure and the launcher's end."""
    command = [sys.executable, "-m", "elastic_infra.launcher", "--nproc-per-node", "2", "--max-restarts", "1"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "JOURNAL": str(tmp_path / "journal")}
    done = subprocess.run(
        ["sh", "-c", SIDECAR, "sh", *command, str(BEHAVE), "fail_once"],
        env={**environ, "ELASTIC_INFRA_WARM_START": "0"},
        cwd=tmp_path,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pids = [int((tmp_path / name).read_text()) for name in ("child", "orphan")]
    alive = [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
    for pid in alive:
        os.kill(pid, signal.SIGKILL)

    assert done.returncode == 0
    assert alive == pids
