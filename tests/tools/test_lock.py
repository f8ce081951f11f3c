"""The locked requirement files: complete, hashed, and installable from any mirror."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock, python_env
from tools.run import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PINNED = re.compile(r"^([\w.\-]+)==(\S+)(?: ;.*)?(?: \\)?$", re.MULTILINE)


def declared() -> list[Requirement]:
    """Everything that `pyproject.toml` asks for in the environment that `make setup` makes."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["launcher"]]
    wanted += [
        line
        for name in ("buckets", "build", "test", "test-launcher", "test-system", "test-tools", "lint")
        for line in groups[name]
    ]
    return [Requirement(line) for line in wanted if isinstance(line, str)]


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_what_is_declared_is_locked(requirement: Requirement) -> None:
    """`make lock` was run after the last change: each dependency is pinned to a version that it allows."""
    pins = PINNED.findall((ROOT / python_env.LOCK).read_text())
    versions = [version for name, version in pins if canonicalize_name(name) == canonicalize_name(requirement.name)]

    assert versions
    assert [version for version in versions if not requirement.specifier.contains(version)] == []


def pinned(path: str, name: str) -> set[str]:
    """The versions of a package in a lock; several where they depend on the Python."""
    pins = PINNED.findall((ROOT / path).read_text())
    return {version for pin, version in pins if canonicalize_name(pin) == canonicalize_name(name)}


def test_the_site_is_built_by_locked_packages() -> None:
    """What `make docs` needs is pinned, the build of the project beside it."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    names = [Requirement(line).name for line in (*groups["docs"], *groups["build"])]

    assert [name for name in names if not pinned(python_env.DOCS_LOCK, name)] == []


def test_the_linters_of_manifests_are_locked() -> None:
    """Each package of the group is pinned, to a version that the group allows."""
    linters = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["linters"])
    pins = {
        each.name: [each.specifier.contains(v) for v in pinned(python_env.LINTERS_LOCK, each.name)] for each in linters
    }

    assert pins == {"checkov": [True]}


def test_the_frameworks_are_locked_beside_the_torch_of_all_tests() -> None:
    """Each package whose scripts are run is pinned, and runs on the same torch as everything else."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    names = [line for line in (*groups["frameworks"], *groups["buckets"]) if isinstance(line, str)]

    assert [name for name in names if not pinned(python_env.FRAMEWORKS_LOCK, name)] == []
    assert pinned(python_env.FRAMEWORKS_LOCK, "torch") == pinned(python_env.LOCK, "torch")


@pytest.mark.parametrize("path", lock.LOCKS)
def test_a_lock_has_hashes_and_no_index(path: str) -> None:
    """Every pin has a hash, so that any mirror will do and none is named."""
    text = (ROOT / path).read_text()
    entries = re.split(
        r"^(?=[\w])", "\n".join(line for line in text.splitlines() if line[:1] != "#"), flags=re.MULTILINE
    )

    assert [entry for entry in entries if entry.strip() and "--hash=sha256:" not in entry] == []
    assert "://" not in text
