"""The page about benchmarks leads to each program and each result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.run import ROOT

PAGE = (ROOT / "docs/benchmarks.md").read_text()
FOLDER = ROOT / "benchmarks"
PROGRAMS = [FOLDER / "render.py", *sorted(FOLDER.glob("*/__main__.py"))]
RESULTS = sorted(path for kind in ("md", "json") for path in FOLDER.glob(f"*/*.{kind}"))
COMMANDS = {"headline": "make bench-quick", "gpu": "make bench-gpu"}
"""Those of programs that are run by make."""


@pytest.mark.parametrize("name", [path.stem if path.stem != "__main__" else path.parent.name for path in PROGRAMS])
def test_each_program_has_its_command_there(name: str) -> None:
    """A benchmark that nobody finds is not run again."""
    assert f"`{COMMANDS.get(name, f'python -m benchmarks.{name}')}" in PAGE


@pytest.mark.parametrize("module", sorted(set(re.findall(r"`python -m ([\w.]+)", PAGE))))
def test_each_command_there_names_a_program(module: str) -> None:
    """A module, or a folder with a program."""
    path = ROOT.joinpath(*module.split("."))

    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_result_is_reached_from_there(path: Path) -> None:
    """As a link or, where it is for programs, by its name or that of its table."""
    name = str(path).removeprefix(f"{ROOT}/").removesuffix(".json").removesuffix(".md")

    assert name in PAGE
