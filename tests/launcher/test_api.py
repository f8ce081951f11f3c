"""Torch's function API as a command line of our launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_infra.launcher import api
from elastic_infra.launcher.command_line.options import OptionsError
from tests.launcher import functions
from tests.launcher.launched import ROOT


def test_other_start_methods_are_refused(tmp_path: Path) -> None:
    """Forking a process that may hold threads is unsafe, so only spawn is taken."""
    with pytest.raises(OptionsError, match="spawn"):
        api.command_line(functions.config(start_method="fork"), functions.double, (1,), tmp_path)


def test_a_program(tmp_path: Path) -> None:
    """A string is a program with its arguments."""
    words = api.command_line(functions.config(), "train", ("--lr", 1), tmp_path)

    assert words[-4:] == ("--no-python", "train", "--lr", "1")


def test_streams_of_the_logs_specs(tmp_path: Path) -> None:
    """Redirects, tee, the ranks filter and the folder of torch's ``LogsSpecs`` become options."""
    torch = pytest.importorskip("torch.distributed.elastic.multiprocessing.api")
    specs = torch.DefaultLogsSpecs(
        log_dir=str(tmp_path),
        redirects=torch.Std.ALL,
        tee={0: torch.Std.OUT, 1: torch.Std.NONE},
        local_ranks_filter={0},
    )
    words = api.command_line(functions.config(logs_specs=specs), "train", (), tmp_path)

    assert {f"--log-dir={tmp_path}", "--redirects=3", "--tee=0:1", "--local-ranks-filter=0"} <= set(words)


def test_a_function_of_the_callers_main(tmp_path: Path) -> None:
    """A script may launch a function that it defines: workers import the script as ``multiprocessing`` does."""
    script = tmp_path / "launches.py"
    script.write_text(MAIN)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ELASTIC_INFRA_WARM_START": "0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "{0: ('0', 42), 1: ('1', 42)}\n"), done.stderr


MAIN = """
import os
from types import SimpleNamespace

from elastic_infra.launcher import api

def double(number):
    return os.environ["RANK"], 2 * number

if __name__ == "__main__":
    config = SimpleNamespace(
        min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="f", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        rdzv_configs={}, max_restarts=0, start_method="spawn",
    )
    print(api.elastic_launch(config, double)(21))
"""
