"""A new infra repository, from the wheel alone, step by step as its author goes: the real CLI, no checkout of ours.

In `repo` are two projects: a platform team's, which exports a namespace, and a training team's, with a component of its
own, a secret, a transform and unit tests.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.distribution import Environment, build, python
from tests.engine.engine import Engine
from tests.engine.provider import KubernetesProvider, serving

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]
REPO = Path(__file__).parent / "repo"
PROGRAMS = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec")
TOKEN = "hf_hunter2hunter2hunter2"
STACKS = ("dev", "prod")


@dataclasses.dataclass(frozen=True)
class Repo:
    """A checkout of the new repository, its environment, and a Pulumi CLI with a backend in files."""

    folder: Path
    environment: Environment
    environ: dict[str, str]

    def run(self, program: str, *arguments: str, project: str = "training") -> subprocess.CompletedProcess[str]:
        """A program in a project's folder, whatever it answers; none of them shows the secret."""
        done = self.environment.run(program, *arguments, folder=self.folder / project, environ=self.environ)
        assert TOKEN not in done.stdout + done.stderr
        return done

    def right(self, program: str, *arguments: str, project: str = "training") -> str:
        """The same where it has to succeed; what it printed."""
        done = self.run(program, *arguments, project=project)
        assert done.returncode == 0, f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def pulumi(self, *arguments: str, project: str = "training") -> str:
        """A command of the Pulumi CLI that has to succeed."""
        return self.right("pulumi", *arguments, "--non-interactive", "--color=never", project=project)

    def resources(self, stack: str) -> dict[str, dict[str, Any]]:
        """What the state of the training project has, by the resource's name."""
        state = json.loads(self.pulumi("stack", "export", "--stack", stack))
        return {each["urn"].rpartition("::")[2]: each for each in state["deployment"]["resources"]}


@pytest.fixture(scope="module")
def repo(pulumi_cli: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repo]:
    """The repository as its author has it after `pip install elastic-infra` and the tools for its own checks."""
    folder = tmp_path_factory.mktemp("new")
    wheel = build("wheel", folder / "dist")
    shutil.copytree(REPO, folder / "repo", ignore=shutil.ignore_patterns("__pycache__"))
    environment = Environment.made(folder / "venv", python("3.12"), wheel, "pytest", "mypy", "basedpyright")
    for name in PROGRAMS:
        found = shutil.which(name, path=pulumi_cli.parent) or shutil.which(name)
        if found is None:
            pytest.skip(f"no {name} beside the Pulumi CLI: `make setup` gets one")
        (environment.bin / name).symlink_to(found)
    (folder / "engine").mkdir()
    with serving(KubernetesProvider()) as providers, Engine.started(pulumi_cli, folder / "engine", providers) as engine:
        backend = f"file://{folder / 'engine/state'}"
        yield Repo(folder / "repo", environment, {**engine.environ, "PULUMI_BACKEND_URL": backend})


def test_the_repository_is_set_up_and_lives(repo: Repo) -> None:
    """From the first preview to the end of both stacks; a fault of one step is no reason to try the next."""
    checks_of_the_author_pass(repo)
    for stack in STACKS:
        a_stack_comes_up(repo, stack)
    a_changed_image_restarts_one_and_is_refused_by_the_other(repo)
    a_pull_request_is_previewed(repo)
    for stack in STACKS:
        a_stack_goes(repo, stack)


def checks_of_the_author_pass(repo: Repo) -> None:
    """Unit tests under mocks, mypy in strict mode, and pyright, without a word to silence one of them."""
    assert "1 passed" in repo.right("pytest", "-q")
    repo.right("mypy", "team.py", "__main__.py", "tests")
    repo.right("basedpyright", "--level", "error", "team.py", "__main__.py")


def a_stack_comes_up(repo: Repo, stack: str) -> None:
    """The platform's namespace, a secret, a preview, an update, and a second look that finds nothing to do."""
    repo.pulumi("stack", "init", stack, project="platform")
    repo.pulumi("up", "--yes", "--skip-preview", project="platform")
    repo.pulumi("stack", "init", stack)
    repo.pulumi("config", "set", "image", "registry.example.com/speech:1")
    repo.pulumi("config", "set", "--secret", "hub_token", TOKEN)
    repo.pulumi("preview", "--diff")
    repo.pulumi("up", "--yes", "--skip-preview")
    repo.pulumi("preview", "--expect-no-changes")
    outputs = json.loads(repo.pulumi("stack", "output", "--json"))
    resources = repo.resources(stack)
    objects = {name: each for name, each in resources.items() if each["type"].startswith("kubernetes:")}
    job = {name: each["inputs"]["metadata"] for name, each in objects.items() if name.startswith("speech-")}

    assert outputs == {"job": "speech", "rendezvous": f"speech-rdzv.training-{stack}.svc:29400"}
    assert {"hub", "speech-workload", "speech-checkpoint"} <= objects.keys()
    assert {metadata["namespace"] for metadata in job.values()} == {f"training-{stack}"}
    assert {metadata["annotations"]["example.com/owner"] for metadata in job.values()} == {"speech@example.com"}
    assert TOKEN not in (repo.folder / f"training/Pulumi.{stack}.yaml").read_text()


def a_changed_image_restarts_one_and_is_refused_by_the_other(repo: Repo) -> None:
    """In `dev` the workload alone is replaced; `prod` is guarded, and the refusal names what differs and the remedy."""
    for stack in STACKS:
        repo.pulumi("config", "set", "image", "registry.example.com/speech:2", "--stack", stack)
    changed = json.loads(repo.pulumi("preview", "--json", "--stack", "dev"))
    steps = {step["urn"].rpartition("::")[2]: step["op"] for step in changed["steps"] if step["op"] != "same"}
    refused = repo.run("pulumi", "preview", "--stack", "prod", "--non-interactive", "--color=never")

    assert {name for name, op in steps.items() if "replace" in op} - {"speech-pin"} == {"speech-workload"}, steps
    assert refused.returncode != 0
    assert "containers[0].image" in refused.stdout
    assert "on_restart" in refused.stdout
    assert "Traceback" not in refused.stdout + refused.stderr
    repo.pulumi("up", "--yes", "--skip-preview", "--stack", "dev")
    repo.pulumi("config", "set", "image", "registry.example.com/speech:1", "--stack", "prod")


def a_pull_request_is_previewed(repo: Repo) -> None:
    """`diff` runs the program of both sides without a cluster, an engine or the passphrase."""
    for arguments in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=speech", "-c", "user.email=speech@example.com", "commit", "--quiet", "--message", "jobs"],
    ):
        repo.right(str(shutil.which("git")), *arguments, project=".")
    file = repo.folder / "training/team.py"
    before = file.read_text()
    file.write_text(before.replace('"memory": "4Gi"', '"memory": "8Gi"'))
    found = json.loads(
        repo.run("elastic-infra", "diff", "HEAD", ".", "--run-programs", "--stack", "prod", "--format", "json").stdout
    )
    file.write_text(before)

    assert [(job["name"], job["consequence"]) for job in found["jobs"]] == [("speech", "restart")]
    assert [change["path"] for change in found["jobs"][0]["changes"]] == ["resources.memory"]


def a_stack_goes(repo: Repo, stack: str) -> None:
    """`destroy` takes everything but the checkpoints, and says so."""
    destroyed = repo.pulumi("destroy", "--yes", "--skip-preview", "--stack", stack)

    assert "speech-checkpoint" in destroyed
    assert "retain" in destroyed
    repo.pulumi("stack", "rm", "--yes", "--force", "--stack", stack)
