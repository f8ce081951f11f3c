"""The plain `pulumi` command line on an example, as a user types it: the Python language host and a real cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.cluster import JOB_LABEL, Namespace
from tests.cluster.waiting import until
from tests.engine.engine import Engine

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
EXAMPLE = Path(__file__).parents[2] / "examples/quickstart"
JOB = "quickstart"
IMAGE = '"registry.example.com/digits:1"'


def program(space: Namespace, folder: Path) -> Path:
    """A copy of the example with an image that the cluster has, in the test's namespace."""
    work = folder / "quickstart"
    shutil.copytree(EXAMPLE, work, ignore=shutil.ignore_patterns("__pycache__"))
    main = work / "__main__.py"
    text = main.read_text()
    assert text.count(IMAGE) == 1
    main.write_text(text.replace(IMAGE, f'"{space.cluster.images[0]}", "namespace": "{space.name}"'))
    return work


def test_an_example_lives_from_up_to_destroy(
    space: Namespace, engine: Engine, pulumi_cli: Path, tmp_path: Path
) -> None:
    """`pulumi up` makes the pods, `preview` then finds nothing to do, `destroy` leaves nothing."""
    path = os.pathsep.join([str(pulumi_cli.parent), os.environ["PATH"]])
    if shutil.which("pulumi-language-python", path=path) is None:
        pytest.skip("no Python language host beside the Pulumi CLI: `make setup` gets one")
    work, state = program(space, tmp_path), tmp_path / "state"
    state.mkdir()
    environ = {**os.environ, **engine.environ, "PATH": path, "PULUMI_BACKEND_URL": f"file://{state}"}

    def pulumi(*arguments: str) -> str:
        command = (str(pulumi_cli), *arguments, "--non-interactive", "--color=never")
        done = subprocess.run(command, cwd=work, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"pulumi {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    pulumi("stack", "init", "test")
    pulumi("up", "--yes", "--skip-preview")
    until("both pods", lambda: len(space.pods(JOB)) == 2, describe=space.describe)
    exported = pulumi("stack", "output", "job").strip()
    pulumi("preview", "--expect-no-changes")
    pulumi("destroy", "--yes", "--skip-preview")

    assert exported == JOB
    assert space.api.find(space.job(JOB)) is None
    assert space.api.list("v1", "Pod", space.name, f"{JOB_LABEL}={JOB}") == []
    assert space.api.list("autoscaling/v2", "HorizontalPodAutoscaler", space.name) == []
