"""What torchrun does, as commands: each is run by torchrun and by this launcher, and both must do the same."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest

from tests.launcher.launched import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.launcher, pytest.mark.timeout(300)]

SHOW = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_NAME", "OMP_NUM_THREADS")
values = " ".join(f"{name}={os.environ.get(name)}" for name in names)
sys.stdout.write(f"{sys.argv[1:]} {values}\\n")  # in one piece, for two workers write to one stream
sys.stderr.write("\\r 10%\\r 90%\\n")
if __name__ == "__main__":
    sys.exit(int(os.environ.get("FAIL", "0")))
"""

COMMANDS: dict[str, tuple[str, ...]] = {
    "arguments": ("--nproc-per-node", "2", "show.py", "--at", "${local_rank}", "-m", "x"),
    "standalone": ("--standalone", "--nproc_per_node=2", "show.py", "--nnodes", "3"),
    "teed": ("--nproc-per-node=2", "--tee=3", "--log-line-prefix-template=${role_name}${rank}|", "show.py"),
    "teed by rank": ("--nproc-per-node=2", "--role=trainer", "--tee=1:1", "show.py"),
    "ranks filter": ("--nproc-per-node=2", "--tee=3", "--local-ranks-filter=1", "show.py"),
    "module": ("PET_NPROC_PER_NODE=2", "-m", "show", "a b"),
    "every option by variable": ("PET_NPROC_PER_NODE=2", "PET_STANDALONE=1", "PET_TEE=3", "PET_ROLE=main", "show.py"),
    "program": ("--nproc-per-node", "1", "--no-python", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"),
    "run path": ("--run-path", "show.py", "--flag"),
    "threads": ("OMP_NUM_THREADS=3", "--nproc-per-node=2", "show.py"),
    "fixed master": ("--nnodes=1", "--node-rank=0", "--master-addr=localhost", "--master-port={port}", "show.py"),
    "virtual ranks": ("--nproc-per-node=2", "--virtual-local-rank", "show.py"),
    "failure": ("FAIL=3", "--nproc-per-node", "1", "--redirects", "3", "--log-dir", "logs", "show.py"),
    "unknown option": ("--no-such-option", "show.py"),
    "no script": ("--nproc-per-node=2",),
}
"""Variables, then the words of a command line."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The visible outcome of a launch: its exit code, and every line that a worker wrote."""

    exit_code: int
    lines: list[str]
    teed: list[str]
    files: list[str]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command(tmp_path: pathlib.Path, name: str) -> None:
    """The exit code, every line of the workers, and the files of their output are torchrun's."""
    words = [word.replace("{port}", str(free_port())) for word in COMMANDS[name]]
    theirs = outcome(tmp_path / "theirs", "torch.distributed.run", words)
    ours = outcome(tmp_path / "ours", "elastic_infra.launcher", words)

    assert ours == theirs
    assert ours.lines or ours.files or ours.teed or ours.exit_code == 2


def outcome(folder: pathlib.Path, module: str, words: list[str]) -> Outcome:
    """Run one command in a separate folder."""
    folder.mkdir()
    (folder / "show.py").write_text(SHOW)
    variables = dict(word.split("=", 1) for word in words if word.split("=")[0].isupper())
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "ELASTIC_INFRA_", "OMP_"))}
    done = subprocess.run(
        [sys.executable, "-m", module, *words[len(variables) :]],
        env={**clean, "PYTHONPATH": str(ROOT), "ELASTIC_INFRA_WARM_START": "0", **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    teed = sorted(line for line in done.stderr.splitlines() if " 10%" in line or " 90%" in line)
    files = sorted(path.read_text() for path in folder.rglob("std*.log") if path.is_file() and path.stat().st_size)
    return Outcome(done.returncode, sorted(done.stdout.splitlines()), teed, files)
