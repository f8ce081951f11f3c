"""The store's token on its way through a launch: it reaches the store and the agent, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_infra.launcher import launch
from elastic_infra.launcher.command_line import options, plan
from elastic_infra.launcher.settings import SECRETS, LauncherSettings

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "c0ffee" * 8


def run(arguments: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A launch with the token in its environment."""
    given = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "ELASTIC_INFRA_STORE_TOKEN": TOKEN, **environ}
    command = [sys.executable, "-m", "elastic_infra.launcher", *arguments]
    return subprocess.run(command, env=given, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_torchrun_does_not_get_the_token(tmp_path: Path) -> None:
    """Where torchrun takes over, its agent and its workers inherit everything that it has."""
    package = tmp_path / "torch/distributed"
    package.mkdir(parents=True)
    for name in ("torch/__init__.py", "torch/distributed/__init__.py"):
        (tmp_path / name).touch()
    (package / "run.py").write_text("import json, os; print(json.dumps(dict(os.environ)))")
    arguments = ["--rdzv-backend", "etcd", "--rdzv-endpoint", "localhost:1", "--nnodes", "2", "--nproc-per-node", "1"]
    done = run([*arguments, "train.py"], tmp_path)

    assert json.loads(done.stdout)["PYTHONPATH"].startswith(str(tmp_path))
    assert TOKEN not in done.stdout + done.stderr


def test_workers_logs_and_events_do_not_get_the_token(tmp_path: Path) -> None:
    """With everything said that can be said."""
    arguments = ["--standalone", "--no-python", "--nproc-per-node", "1", "--log-dir", str(tmp_path / "logs"), "env"]
    done = run(arguments, tmp_path, ELASTIC_INFRA_LOG_LEVEL="DEBUG", ELASTIC_INFRA_EVENTS=str(tmp_path / "events"))
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]

    assert done.returncode == 0, done.stderr
    assert "RANK=0" in done.stdout
    assert "launcher_started" in "".join(files)
    assert [text for text in (done.stdout, done.stderr, *files) if TOKEN in text] == []


def resolved(*arguments: str) -> plan.Plan:
    """The plan of a command line."""
    given = options.parse([*arguments, "train.py"], {})
    found = plan.resolve(given, LauncherSettings(), {}, nproc_per_node=1, new_run_id="run")
    assert isinstance(found, plan.Plan)
    return found


def test_a_standalone_launch_makes_its_own_token() -> None:
    """Others on the machine can reach its port; a token that was given stays, and a known port has none of ours."""
    own = [launch.with_own_token(LauncherSettings(), resolved("--standalone")).store_token for _ in range(2)]
    shared = resolved("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29400", "--nnodes", "2")

    assert own[0] != own[1]
    assert [len(token) for token in own] == [64, 64]
    assert launch.with_own_token(LauncherSettings(store_token=TOKEN), resolved("--standalone")).store_token == TOKEN
    assert launch.with_own_token(LauncherSettings(), shared).store_token == ""


@pytest.mark.parametrize("field", SECRETS)
def test_settings_do_not_show_secrets(field: str) -> None:
    """In a traceback or a debugger's line."""
    assert TOKEN not in repr(dataclasses.replace(LauncherSettings(), **{field: TOKEN}))  # type: ignore[arg-type]  # texts
