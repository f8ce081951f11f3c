"""What may be published: a tag of this version, from the repository that the package names, with a dated entry."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tools import release
from tools.run import ROOT

HOME = "https://host.test/team/repository"
PYPROJECT = f'[project]\nversion = "1.2.3"\n\n[tool.x]\nrepository = "{HOME}"  # a note\n'
CHANGELOG = "# Changelog\n\n## [1.2.3] - 2030-01-31\n\n- All.\n"


def workflow() -> dict[str, Any]:
    """The workflow that publishes."""
    document: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    return document


def test_a_release_in_order_is_let_through() -> None:
    """Nothing is said of it."""
    assert list(release.faults("v1.2.3", HOME, PYPROJECT, CHANGELOG)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tag": "v1.2.4"}, "Tag v1.2.3, or change the version"),
        ({"tag": "1.2.3"}, "Tag v1.2.3, or change the version"),
        ({"repository": "https://host.test/fork/repository"}, "Change `repository` in pyproject.toml"),
        ({"changelog": CHANGELOG.replace(" - 2030-01-31", "")}, "Name the entry `## [1.2.3] - YYYY-MM-DD`"),
        ({"changelog": CHANGELOG.replace("1.2.3", "1x2.3")}, "Name the entry `## [1.2.3] - YYYY-MM-DD`"),
    ],
)
def test_each_slip_is_named_with_what_to_do(change: dict[str, str], said: str) -> None:
    """One line each, before anything is built."""
    given = {"tag": "v1.2.3", "repository": HOME, "pyproject": PYPROJECT, "changelog": CHANGELOG}
    (line,) = release.faults(**{**given, **change})

    assert said in line


def test_the_checkouts_own_keys_are_found() -> None:
    """The version and the repository stand in `pyproject.toml` as the check looks for them."""
    pyproject = (ROOT / "pyproject.toml").read_text()

    assert re.fullmatch(r"\d+\.\d+\.\d+", release.value("version", pyproject))
    assert release.value("repository", pyproject).startswith("https://")


def test_the_workflow_keeps_no_token_and_pins_each_action() -> None:
    """Rights are given job by job, to the job that publishes no more than its identity."""
    jobs = workflow()["jobs"]
    uses = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]

    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use) for use in uses), uses
    assert workflow()["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in str(jobs)


def test_what_takes_minutes_is_tested_before_the_upload() -> None:
    """By the very command that the steps for a person have, in the job for which the upload waits."""
    command = 'make soak PYTEST_ARGS="tests/tools tests/infra_repo tests/languages"'
    jobs = workflow()["jobs"]
    before = [step.get("run", "") for step in jobs["build"]["steps"]]
    (step,) = (step for step in before if command in step)
    built, tested = step.replace("\\\n", "").splitlines()

    assert built.split()[:4] == ["python", "-m", "tools.build", "build"]
    assert {path.parent.name for path in (ROOT / "tools").glob("pulumi*/go.mod")} == set(built.split()[4:])
    assert tested == command
    assert command in (ROOT / "CONTRIBUTING.md").read_text()
    assert jobs["publish"]["needs"] == "build"


def test_the_workflow_builds_every_distribution() -> None:
    """The main one, and each that is made of its sources."""
    commands = "\n".join(step.get("run", "") for step in workflow()["jobs"]["build"]["steps"])
    others = [path.parent.relative_to(ROOT) for path in ROOT.glob("distributions/*/pyproject.toml")]

    assert others
    assert all(f"--wheel {path}" in commands for path in others)


@pytest.mark.parametrize("file", release.CI_EXAMPLES)
def test_the_ci_that_others_copy_installs_this_release(file: str) -> None:
    """Unpinned, a release of ours would change what their pull requests show."""
    version = release.value("version", (ROOT / "pyproject.toml").read_text())
    installed = re.findall(r"pip install (?:--quiet )?(\S+)", (ROOT / file).read_text())

    assert installed == [f"elastic-infra=={version}"]


def test_the_plugin_of_a_release_is_of_that_release() -> None:
    """What `pulumi package add` finds at a tag installs the package of the tag."""
    version = release.value("version", (ROOT / "pyproject.toml").read_text())
    installed = [line for line in (ROOT / "plugin/requirements.txt").read_text().splitlines() if line[0] != "#"]

    assert installed == [f"elastic-infra=={version}"]
