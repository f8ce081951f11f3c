"""The wheel on every Python that it promises, in an environment that holds nothing of the checkout."""

from __future__ import annotations

import base64
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.distribution import PYTHONS, Environment, build, python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JOB = """\
image: registry.example.com/hello:1
command: [python3, "-c", "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"]
elastic: {nnodes: 2}
resources: {cpu: 1, memory: 1Gi}
"""
"""Without torch, which the wheel does not install: a command of its own."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=PYTHONS)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and what the wheel asks for."""
    return Environment.made(tmp_path_factory.mktemp("env") / "venv", python(request.param), wheel)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one job file."""
    (tmp_path / "hello.yaml").write_text(JOB)
    return tmp_path


def test_it_renders_a_job(installed: Environment, wheel: Path, folder: Path) -> None:
    """Every object, with the very launcher that the wheel carries: the same on each Python."""
    version = installed.run("elastic-infra", "--version", folder=folder)
    rendered = installed.run("elastic-infra", "render", "hello.yaml", folder=folder)
    objects = {document["kind"]: document for document in yaml.safe_load_all(rendered.stdout)}
    carried = zipfile.ZipFile(wheel).read("elastic_infra/manifests/launcher.zip")

    assert (version.returncode, version.stderr) == (0, "")
    assert rendered.returncode == 0, rendered.stderr
    assert objects.keys() == {"PyTorchJob", "ConfigMap", "Service", "NetworkPolicy"}
    assert base64.b64decode(objects["ConfigMap"]["binaryData"]["launcher.zip"]) == carried


def test_it_runs_a_job(installed: Environment, folder: Path) -> None:
    """Two nodes find each other and run the command; the launcher needs nothing but Python."""
    done = installed.run("elastic-infra", "run", "hello.yaml", "--timeout", "120", folder=folder)

    assert done.returncode == 0, done.stdout + done.stderr
    logs = "".join(log.read_text() for log in folder.glob(".elastic-infra/*/logs/*.log"))
    assert {"rank 0 of 2", "rank 1 of 2"} <= set(logs.splitlines()), logs


def test_the_component_and_the_policies_are_imported(installed: Environment, folder: Path) -> None:
    """A warning of deprecation from our own modules would be the user's, so each is an error."""
    program = "import elastic_infra as e; [getattr(e, name) for name in e.__all__]; print(e.__version__)"
    done = installed.run("python", "-W", "error:::elastic_infra", "-c", program, folder=folder)

    assert (done.returncode, done.stderr) == (0, "")
