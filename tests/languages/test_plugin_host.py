"""The package as `pulumi package add` of its repository gets it: PulumiPlugin.yaml through Pulumi's own Python host."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests import distribution
from tests.engine.engine import Engine
from tests.engine.jobs import WORKLOAD
from tests.engine.plugin import VERSION
from tests.engine.test_languages import remote
from tests.languages.hosts import current, environ, host
from tests.package_schema import package_schema
from tools.run import ROOT, output

PLUGIN = "plugin"
"""The folder that Pulumi gets of the repository."""
ENVIRONMENT = ".venv-plugin/"
"""What newer hosts make of the option `virtualenv`; git ignores it."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's files, committed."""
    folder = tmp_path_factory.mktemp("clone") / "checkout"
    listed = output(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], folder=ROOT)
    for name in filter(lambda name: (ROOT / name).is_file(), listed.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    output(["git", "init", "--quiet"], folder=folder)
    output(["git", "add", "--all"], folder=folder)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    output(["git", *identity, "commit", "--quiet", "--message", "all"], folder=folder)
    return folder


@pytest.fixture(scope="module")
def user(
    engine: Engine, pulumi_cli: Path, checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """The variables of a user whose Python has nothing of ours.

    Old hosts take a plugin's options as flags of their own, which the CLI no longer passes.
    """
    flags = ["-root", str(checkout / PLUGIN), "-virtualenv", ENVIRONMENT.rstrip("/")]
    python, of_project = (host(language, pulumi_cli) for language in ("python", "yaml"))
    takes_flags = "-virtualenv" in subprocess.run([python, "-h"], capture_output=True, text=True, check=False).stderr
    folder = tmp_path_factory.mktemp("host")
    hosts = current(python, folder, flags if takes_flags else []), current(of_project, folder)
    found = environ(engine, pulumi_cli, *hosts, python)
    clean = {name: value for name, value in found.items() if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    wheel = distribution.build("wheel", tmp_path_factory.mktemp("wheel"))
    return {**clean, "PIP_FIND_LINKS": str(wheel.parent)}  # the release, which the index need not have yet


@pytest.fixture(scope="module")
def project(
    pulumi_cli: Path, checkout: Path, user: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A project to which `pulumi package add FOLDER` has added the package; the host installed its needs."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "Pulumi.yaml").write_text("name: digits\nruntime: yaml\n")
    command = [str(pulumi_cli), "package", "add", str(checkout / PLUGIN)]
    done = subprocess.run(command, cwd=folder, env=user, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_host_installs_and_asks_the_plugin(project: Path) -> None:
    """No uv, and nothing of ours before: the host's pip gets what the plugin needs, and the plugin answers.

    The CLI writes the package into the project, and has an SDK made of the plugin's schema.
    """
    added = yaml.safe_load((project / "Pulumi.yaml").read_text())["packages"]
    found, expected = json.loads((project / "sdks/elastic-infra/schema.json").read_text()), json.loads(package_schema())

    assert list(added) == ["elastic-infra"]
    assert (found["name"], found["version"]) == ("elastic-infra", VERSION)
    assert found["types"].keys() == expected["types"].keys()


@pytest.mark.usefixtures("project")
def test_nothing_is_left_in_the_checkout(checkout: Path) -> None:
    """Neither a lock file nor bytecode nor what a build leaves, ignored by git or not."""
    left = output(["git", "status", "--porcelain", "--ignored"], folder=checkout).splitlines()

    assert [line for line in left if not line.endswith(ENVIRONMENT)] == []


@pytest.mark.usefixtures("project")
def test_a_program_in_another_language_gets_a_job(engine: Engine, checkout: Path) -> None:
    """What the host installed makes the job of a deployment, started as the host starts a plugin: `python FOLDER`."""
    folder = checkout / PLUGIN
    started = engine.home / f"plugins/resource-elastic-infra-v{VERSION}/pulumi-resource-elastic-infra"
    started.parent.mkdir(parents=True)
    started.write_text(f'#!/bin/sh\nexec {folder / ENVIRONMENT / "bin/python"} {folder} "$@"\n')
    started.chmod(0o755)
    shown = engine.stack().preview(remote())

    assert not shown.failed, shown.text
    assert shown.inputs(WORKLOAD)["spec"]["elasticPolicy"]["maxReplicas"] == 4
