"""The launcher's zip: the same bytes from the same sources, small, and it runs anywhere."""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from elastic_infra.manifests import launcher
from tests import jobs

ROOT = Path(__file__).parents[2]


def _zip() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(launcher.archive()))


def test_the_zip_says_nothing_of_the_machine_that_made_it() -> None:
    """Stored, sorted, fixed times, one kind of system: another machine gives the same hash."""
    entries = _zip().infolist()

    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {entry.create_system for entry in entries} == {3}


def test_the_zip_is_the_same_in_another_process() -> None:
    """Built anew, whatever the hash seed and the folder."""
    program = "from elastic_infra.manifests.launcher import digest; print(digest())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == launcher.digest()


def test_the_zip_holds_the_launcher_and_what_training_scripts_import() -> None:
    """Sources only, nothing of the infra side."""
    names = _zip().namelist()
    parts = {name.split("/")[1] for name in names if name.startswith("elastic_infra/")}

    assert {"__main__.py", "elastic_infra/__init__.py", "elastic_infra/launcher/settings.py"} <= set(names)
    assert parts <= {"__init__.py", "launcher", "training"}
    assert all(name.endswith(".py") for name in names)


def test_the_zip_fits_a_config_map() -> None:
    """A ConfigMap holds 1 MiB, and base64 adds a third."""
    assert len(launcher.archive()) < launcher.MAX_ARCHIVE_BYTES


def test_the_config_map_is_immutable_and_named_by_its_content() -> None:
    """A new version of the launcher is a new object, never a silent change under a running job."""
    config_map = jobs.objects(jobs.job())["launcher"]

    assert config_map["immutable"] is True
    assert config_map["metadata"]["name"] == f"job-launcher-{launcher.digest()}"
    assert base64.b64decode(config_map["binaryData"]["launcher.zip"]) == launcher.archive()


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the zip as a container would: a foreign folder and nothing of ours in the environment."""
    archive = folder / "launcher.zip"
    archive.write_bytes(launcher.archive())
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    return subprocess.run(
        [sys.executable, "-S", "-E", str(archive), *arguments],
        cwd=elsewhere,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(
    importlib.util.find_spec("elastic_infra.launcher.__main__") is None,
    reason="the launcher has no entry point yet",
)
def test_the_zip_runs_without_an_installation(tmp_path: Path) -> None:
    """The standard library is enough to be asked for help."""
    done = _run(tmp_path, "--help")

    assert done.returncode == 0, done.stderr
    assert "--nnodes" in done.stdout
