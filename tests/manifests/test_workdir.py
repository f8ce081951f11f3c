"""Local code in the objects: packed the same everywhere, unpacked by the image's own Python."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from elastic_infra import ConfigError, JobConfig, render
from elastic_infra.config.workdir import archive, by_path, digest, listing, told
from elastic_infra.manifests.workdir import ARCHIVE, LISTING
from tests import jobs

TARGETS = {"pytorchjob": jobs.elastic, "job": jobs.indexed, "single": jobs.job, "trainjob": jobs.train_job}
NAMES = st.text("abc_-. ü", min_size=1, max_size=8).filter(lambda name: name.strip(". ") == name)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
FOLDERS = st.dictionaries(PATHS, st.binary(max_size=64), min_size=1, max_size=8).filter(
    lambda files: not any(other.startswith(f"{path}/") for path in files for other in files)
)


def given(**files: str) -> dict[str, Any]:
    """The key of a job file for some files, `_` in a name standing for the dot."""
    return {"files": {name.replace("_", "."): base64.b64encode(text.encode()).decode() for name, text in files.items()}}


@hypothesis.given(FOLDERS)
def test_packing_keeps_paths_and_contents_and_nothing_of_the_machine(files: dict[str, bytes]) -> None:
    """Whatever the order; times, owners and modes are fixed, and a script can be executed."""
    packed = archive(files)
    with tarfile.open(fileobj=BytesIO(packed)) as unpacked:
        entries = unpacked.getmembers()
        found = {entry.name: unpacked.extractfile(entry).read() for entry in entries}  # type: ignore[union-attr]

    assert found == files
    assert [entry.name for entry in entries] == sorted(files)
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries} == {(0, 0, "", 315_532_800)}
    assert {entry.name for entry in entries if entry.mode == 0o755} == {
        path for path, content in files.items() if content.startswith(b"#!")
    }
    assert archive(dict(reversed(files.items()))) == packed


@hypothesis.given(FOLDERS, FOLDERS)
def test_other_files_have_another_name(files: dict[str, bytes], others: dict[str, bytes]) -> None:
    """The digest is of paths and contents alone."""
    assert (digest(files) == digest(others)) == (files == others)
    assert by_path(listing(files)) == {path: told(content) for path, content in files.items()}


def test_packing_is_the_same_in_another_process(tmp_path: Path) -> None:
    """Whatever the hash seed, the zone and the mask of modes."""
    program = (
        "import os, sys; os.umask(0o77); from elastic_infra.config.workdir import archive;"
        "sys.stdout.buffer.write(archive({'b.py': b'2' * 999, 'a/a.sh': b'#!x'}))"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, check=True
    )

    assert done.stdout == archive({"a/a.sh": b"#!x", "b.py": b"2" * 999})


@pytest.mark.parametrize("target", TARGETS)
def test_every_workload_unpacks_the_code_before_it_trains(target: str) -> None:
    """One ConfigMap, one init container, and the folder where the training container works."""
    config = TARGETS[target](workdir=given(train_py="print(1)"), resources={"cpu": 2, "memory": "1Gi", "gpu": 1})
    objects, spec = jobs.objects(config), jobs.pod_spec(config)
    made = objects["workdir"]
    (init,) = spec["initContainers"]
    volumes = {each["name"]: each for each in spec["volumes"]}

    assert made["metadata"]["name"] == f"job-workdir-{digest({'train.py': b'print(1)'})}"
    assert (made["immutable"], made["data"]) == (True, {LISTING: listing({"train.py": b"print(1)"})})
    assert base64.b64decode(made["binaryData"][ARCHIVE]) == archive({"train.py": b"print(1)"})
    assert volumes["workdir-archive"]["configMap"]["name"] == made["metadata"]["name"]
    assert init["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert jobs.container(config)["workingDir"] == "/workspace"
    assert jobs.environment(config)["ELASTIC_INFRA_WORKDIR"] == "/workspace"


def test_the_init_container_unpacks_with_the_standard_library_alone(tmp_path: Path) -> None:
    """The very command, with the mounts' folders in the place of their paths."""
    config = jobs.job(workdir=given(train_py="print(1)", run_sh="#!/bin/sh\n"))
    (init,) = jobs.pod_spec(config)["initContainers"]
    packed = jobs.objects(config)["workdir"]["binaryData"][ARCHIVE]
    (tmp_path / ARCHIVE).write_bytes(base64.b64decode(packed))
    places = {"/opt/elastic-infra-workdir": str(tmp_path), "/workspace": str(tmp_path / "there")}
    command = [sys.executable if word == "python3" else word for word in init["command"]]
    for path, place in places.items():
        command = [word.replace(path, place) for word in command]

    subprocess.run(command, check=True, env={})

    assert (tmp_path / "there/train.py").read_text() == "print(1)"
    assert os.access(tmp_path / "there/run.sh", os.X_OK)


def test_a_working_dir_of_ones_own_stays() -> None:
    """The code is mounted, and the container works elsewhere."""
    config = jobs.job(workdir=given(train_py="1"), working_dir="/app")

    assert jobs.container(config)["workingDir"] == "/app"


def test_an_image_with_its_own_launcher_searches_the_code_for_modules() -> None:
    """No mounted launcher puts the folder before the image's, so the variable itself is set."""
    config = jobs.job(workdir=given(train_py="1"), launcher={"delivery": "image"})

    assert jobs.environment(config)["PYTHONPATH"] == "/workspace"


def test_the_mounted_launcher_searches_itself_then_the_code_then_what_the_image_names(tmp_path: Path) -> None:
    """The image's PYTHONPATH stays, behind the code that is to replace what it has."""
    script = tmp_path / "show.py"
    script.write_text("import os; print(os.environ['PYTHONPATH'])")
    (tmp_path / "launcher.zip").write_bytes(
        base64.b64decode(jobs.objects(jobs.job())["launcher"]["binaryData"]["launcher.zip"])
    )
    environment = {
        "PATH": os.environ["PATH"],
        "ELASTIC_INFRA_WORKDIR": "/code",
        "PYTHONPATH": "/image",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }

    done = subprocess.run(
        [sys.executable, str(tmp_path / "launcher.zip"), "--standalone", "--nnodes=1", str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.split() == [f"{tmp_path}/launcher.zip:/code:/image"]


def test_code_that_was_not_read_is_no_code() -> None:
    """A config made without its folder is refused with the way to read it."""
    with pytest.raises(ConfigError, match="has not been read"):
        render("train", jobs.job(workdir="src"))


def test_a_job_without_local_code_is_as_before() -> None:
    """No object, no init container, no variable."""
    config: JobConfig = jobs.elastic()

    assert "workdir" not in jobs.objects(config)
    assert "initContainers" not in jobs.pod_spec(config)
    assert "ELASTIC_INFRA_WORKDIR" not in jobs.environment(config)
