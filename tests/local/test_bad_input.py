"""What cannot run here is refused before anything is started: exit code 2, every reason at once, and what to do."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Result, elastic_infra
from tests.local.running import write_job


def refused(folder: Path, *options: str | Path, **changes: Any) -> Result:
    """Run a job that must be refused."""
    result = elastic_infra("run", write_job(folder, **changes), *options)
    assert result.code == 2, result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert not (folder / "work").exists()
    return result


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--faults", "1s kill nobody"), "--faults: column 1: unknown fault 'kill nobody'."),
        (("--faults", "1s kill node 3"), "there is no node 3: the job then has 1 node, from 0 on."),
        (("--faults", "1s scale 9"), "cannot scale to 9: elastic.nnodes allows 1 to 3 nodes."),
        (("--nodes", "4"), "--nodes: elastic.nnodes allows 1 to 3 nodes."),
        (("--nodes", "0"), "--nodes: elastic.nnodes allows 1 to 3 nodes."),
        (("--chaos", "1", "--faults", "1s scale 2"), "--chaos: cannot be given together with --faults"),
        (("--env", "A=1", "--env", "TOKEN"), "--env: number 2 is not of the form NAME=VALUE. Put '=' behind the name."),
        (("--volume", "data"), "--volume: number 1 is not of the form NAME=FOLDER."),
        (("--ports", "80"), "--ports: '80' is no range of ports."),
        (("--timeout", "-1"), "--timeout: must be more than 0 s."),
    ],
)
def test_options(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    """Each option is checked against the job."""
    assert said in refused(tmp_path, "--workdir", tmp_path / "work", *options).err


def test_every_reason_at_once(tmp_path: Path) -> None:
    """One run says all that is wrong."""
    env = {"TOKEN": {"secret": "hf", "key": "token"}, "MODE": {"configmap": "modes", "key": "mode"}}
    said = refused(tmp_path, "--faults", "1s nothing", "--nodes", "9", script="gone.py", env=env).err
    assert len(said.splitlines()) == 5
    for reason in ("`--env TOKEN=VALUE`", "`--env MODE=VALUE`", "gone.py is missing", "--nodes", "--faults"):
        assert reason in said


def test_python_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, with the way to install torch; a program that is not Python needs none."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    said = refused(tmp_path).err
    other = refused(tmp_path, "--nodes", "9", script=None, command=["true"], args=None).err

    assert f"torch is missing in {sys.prefix}, whose Python runs the workers." in said
    assert "pip install 'elastic-infra[launcher]'" in said
    assert "torch is missing" not in other


@pytest.mark.parametrize("text", ["=hunter2", "TOKEN hunter2", "TOKEN:hunter2", "hunter2"])
def test_values_are_never_shown(tmp_path: Path, text: str) -> None:
    """A variable given by hand may be a secret."""
    assert "hunter2" not in refused(tmp_path, "--env", text).err


def test_volumes_of_the_cluster(tmp_path: Path) -> None:
    """A Secret or ConfigMap as a volume needs a folder."""
    storage = {"volumes": [{"name": "keys", "secret": "ssh"}], "mounts": [{"volume": "keys", "mount_path": "/keys"}]}
    said = refused(tmp_path, storage=storage).err
    assert "Give a folder for it with `--volume keys=FOLDER`." in said


def test_volumes_of_no_kind_that_is_known(tmp_path: Path) -> None:
    """Another one of an overlay is not taken for a ConfigMap."""
    volume = {"name": "data", "nfs": {"server": "files", "path": "/"}}
    said = refused(tmp_path, overlays={"pod": {"spec": {"volumes": [volume]}}}).err
    assert "is a volume of the cluster. Give a folder for it with `--volume data=FOLDER`." in said


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="this machine has GPUs")
def test_gpu_job_without_gpus(tmp_path: Path) -> None:
    """It says how many are missing, and offers --cpu."""
    said = refused(tmp_path, "--nodes", "2", resources={"gpu": 8}).err
    assert "2 nodes with 8 nvidia GPUs each need 16, and this machine has 0." in said
    assert "--cpu" in said


def test_accelerators_that_are_not_shared_out(tmp_path: Path) -> None:
    """TPUs and the cores of Neuron have no variable by which each node would see its own alone."""
    said = refused(tmp_path, resources={"gpu": {"count": 4, "vendor": "google"}}).err
    assert "accelerators of google are not shared out among nodes here. Run without them: --cpu." in said


def test_used_up_ports(tmp_path: Path) -> None:
    """A range without a free port is refused."""
    with socket.socket() as end:
        end.bind(("", 0))
        end.listen()
        port = end.getsockname()[1]
        said = refused(tmp_path, "--ports", f"{port}-{port}").err
    assert f"1 free ports are needed, and between {port} and {port} there are 0." in said


def test_unwritable_work_folder(tmp_path: Path) -> None:
    """A file is no folder; a folder that cannot be written is refused as well."""
    (tmp_path / "file").write_text("")
    said = elastic_infra("run", write_job(tmp_path), "--workdir", tmp_path / "file" / "work")
    assert said.code == 2
    assert "cannot be written" in said.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(tmp_path: Path) -> None:
    """The system's reason is said."""
    (tmp_path / "closed").mkdir(mode=0o500)
    said = elastic_infra("run", write_job(tmp_path), "--workdir", tmp_path / "closed" / "work")
    assert said.code == 2
    assert "Permission denied" in said.err
