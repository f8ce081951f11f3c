"""An environment beside `.venv`: made once for each lock, on the first Python that is there."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import pytest

from tools import extra_env, python_env
from tools.extra_env import Extra
from tools.run import SetupError


def extra(folder: Path, *pythons: str) -> Extra:
    """An environment to make, of the smallest lock."""
    return Extra(folder, python_env.BOOTSTRAP_LOCK, pythons)


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    """No installer runs: the one named here does not exist."""
    there = extra(tmp_path, sys.executable)
    (tmp_path / "setup.txt").write_text(there.fingerprint())
    extra_env.ensure(there, Path("/no/uv"), print)


def test_another_lock_makes_it_anew(tmp_path: Path) -> None:
    """What was made for one lock is not taken for another."""
    there = extra(tmp_path, sys.executable)
    (tmp_path / "setup.txt").write_text(dataclasses.replace(there, lock=python_env.LOCK).fingerprint())

    with pytest.raises(SetupError, match="cannot be started"):
        extra_env.ensure(there, Path("/no/uv"), print)


def test_a_python_that_is_not_here_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each one that was looked for is named, and the last reason is the error."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("the environment holds no uv of its own")
    with pytest.raises(SetupError):
        extra_env.make(extra(tmp_path / "env", "/no/python", "/no/other"), uv, print)

    assert [line.rpartition(" Python ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "/no/python here",
        "/no/other here",
    ]


def test_a_torch_is_chosen_by_the_name_of_its_environment() -> None:
    """Each has its own folder, and one that was made for another torch is not taken for it."""
    first, second = extra_env.find("torch-2.9"), extra_env.find("torch-2.10")

    assert first.unlocked[-1] == "torch==2.9.*"
    assert (first.folder.name, second.folder.name) == (".venv-torch-2.9", ".venv-torch-2.10")
    assert first.fingerprint() != second.fingerprint()


@pytest.mark.parametrize("name", ["torch", "torch-", "torch-2", "torch-2.9 --index-url=x", "newest"])
def test_an_environment_that_nobody_knows_is_an_error(name: str) -> None:
    """It says which there are, and what a torch's name looks like."""
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"is none of oldest, .*, or torch- and a version such as 2\.9"
    ):
        extra_env.find(name)
