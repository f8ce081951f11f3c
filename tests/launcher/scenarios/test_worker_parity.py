"""A worker finds what torchrun would give it: environment, arguments, and the way it is run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.launcher.launched import ROOT

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(600)]

DUMP = pathlib.Path(__file__).parents[1] / "scripts" / "dump.py"

ADDRESSES = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "DUMP"}
"""Addresses, ports and paths are each launch's own."""
DEVIATIONS = {"TORCHELASTIC_USE_AGENT_STORE": ("True", "False"), "TORCH_NCCL_ASYNC_ERROR_HANDLING": ("1", "3")}
"""Torchrun's value and ours (``options.DEVIATIONS`` has the reasons)."""
NEWER = {"TORCHELASTIC_SIGNALS_TO_HANDLE"}
"""Variables that torchrun sets since a release after 2.6, and this launcher always."""
OURS = {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"}

COMMAND_LINES = [
    pytest.param(("--nproc-per-node", "2", "--role", "trainer", str(DUMP), "--rank=${local_rank}", "x y"), id="script"),
    pytest.param(
        ("--nnodes", "1:1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "mine",
         "--max-restarts", "3", "--virtual-local-rank", "-m", "tests.launcher.scripts.dump", "--", "-m"),
        id="module",
    ),
    pytest.param(("--standalone", "--no-python", sys.executable, str(DUMP), "--flag"), id="program"),
]  # fmt: skip


def run(module: str, arguments: tuple[str, ...], folder: pathlib.Path) -> list[dict[str, Any]]:
    """The surroundings that each rank found."""
    folder.mkdir()
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PET_", "ELASTIC_INFRA_", "TORCH", "PYTEST", "OMP"))
    }
    environ = {**clean, "PYTHONPATH": str(ROOT), "DUMP": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def release() -> tuple[int, int]:
    """Torch's release, without importing it."""
    major, minor, *_ = importlib.metadata.version("torch").split(".")
    return int(major), int(minor)


def comparable(found: dict[str, Any], run_id_is_free: bool) -> dict[str, Any]:
    """The surroundings without the parts that may differ."""
    free = ADDRESSES | OURS | DEVIATIONS.keys() | ({"TORCHELASTIC_RUN_ID"} if run_id_is_free else set())
    kept = {
        name: value
        for name, value in found["environ"].items()
        if name not in free and not name.startswith("ELASTIC_INFRA_")
    }
    return {**found, "environ": kept}


@pytest.mark.parametrize("arguments", COMMAND_LINES)
def test_r0_value_for_value(arguments: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    """R0: apart from addresses, ports, ids and the table of deviations, both launchers give every worker the same."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    if "--virtual-local-rank" in arguments and release() < (2, 10):
        arguments = tuple(word for word in arguments if word != "--virtual-local-rank")
    theirs = run("torch.distributed.run", arguments, tmp_path / "torchrun")
    ours = run("elastic_infra.launcher", arguments, tmp_path / "ours")
    free = "--rdzv-id" not in arguments
    for name in NEWER - theirs[0]["environ"].keys():
        for one in ours:
            del one["environ"][name]

    assert [comparable(one, free) for one in theirs] == [comparable(one, free) for one in ours]
    for their, our in zip(theirs, ours, strict=True):
        for name, values in DEVIATIONS.items():
            assert values == (their["environ"][name], our["environ"][name])
