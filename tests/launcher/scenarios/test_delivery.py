"""How the launcher comes into a container: zipped, standard library only, with its handlers first."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from elastic_infra.manifests.archive import build
from tests.launcher.launched import BEHAVE, ROOT
from tests.ports import free_port


@pytest.fixture
def archive(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "launcher.zip"
    path.write_bytes(build(ROOT / "elastic_infra"))
    return path


def clean_environ(**more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PET_", "ELASTIC_INFRA_")) and name != "PYTHONPATH"
    }
    return {**kept, **more}


@pytest.mark.launcher
def test_from_a_zip(archive: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Out of a zip, from any folder, workers run and find the training package on their path."""
    script = tmp_path / "train.py"
    script.write_text("from elastic_infra.training import Progress\nprint('step', Progress().step(1))\n")
    done = subprocess.run(
        [sys.executable, str(archive), "--standalone", str(script)],
        env=clean_environ(), cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout == "step False\n"


def imported_by(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "elastic_infra.launcher", *arguments],
        env=clean_environ(), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]


def test_r0_nothing_heavy_before_the_handlers() -> None:
    """R0: until signal handlers are live only three small files of ours and the standard library are imported."""
    names = imported_by("--help")
    before = names[: names.index("elastic_infra.launcher.signals") + 1]
    ours = [name for name in before if name.startswith("elastic_infra")]
    third_party = {"torch", "pulumi", "pydantic", "yaml", "numpy", "rich", "typer"}

    assert ours == ["elastic_infra", "elastic_infra.launcher", "elastic_infra.launcher.signals"]
    assert third_party.isdisjoint(name.partition(".")[0] for name in names)
    assert not {"argparse", "json", "dataclasses", "ctypes"} & set(before)


def test_relative_imports_only() -> None:
    """Launcher and training can be mounted under any name: they never name their own package in an import."""
    sources = [
        *(ROOT / "elastic_infra" / "launcher").rglob("*.py"),
        *(ROOT / "elastic_infra" / "training").rglob("*.py"),
    ]
    absolute = [
        path for path in sources if re.search(r"^\s*(from|import) elastic_infra\b", path.read_text(), re.MULTILINE)
    ]

    assert absolute == []


@pytest.mark.launcher
@pytest.mark.timeout(600)
def test_static_on_several_nodes_is_torchruns(tmp_path: pathlib.Path) -> None:
    """A static launch on two nodes is run by torchrun itself, after one line that says what is missing then."""
    pytest.importorskip("torch")
    port = str(free_port())
    environ = clean_environ(JOURNAL=str(tmp_path / "journal"), ELASTIC_INFRA_GENERATION="1", PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "elastic_infra.launcher", "--nnodes", "2", "--master-port", port]
    nodes = [
        subprocess.Popen(
            [*command, "--node-rank", str(rank), str(BEHAVE), "finish"],
            env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [node.communicate()[1] for node in nodes]

    assert [node.returncode for node in nodes] == [0, 0], said
    assert all(text.count("Torchrun runs this launch") == 1 for text in said)
