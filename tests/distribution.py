"""The wheel and the sdist of this checkout, and fresh environments that hold the wheel and nothing else of ours."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import python_env
from tools.run import ROOT, SetupError, output

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""What the package promises."""
UV = Path(sys.executable).with_name("uv")


def build(target: str, folder: Path, source: Path = ROOT) -> Path:
    """A `wheel` or an `sdist` of the sources, by the build backend that this environment has."""
    output([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder], folder=source)
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment of its own."""

    folder: Path

    @classmethod
    def made(cls, folder: Path, python: str | Path, *requirements: str | Path) -> Environment:
        """An environment on this Python, with packages from the index that pip is configured for."""
        settings = python_env.settings_for_uv(Path(sys.executable))
        output([UV, "venv", "--quiet", "--seed", "--python", python, folder], environ=settings)
        made = cls(folder)
        output([UV, "pip", "install", "--python", made.bin / "python", *requirements], environ=settings)
        return made

    @classmethod
    def empty(cls, folder: Path) -> Environment:
        """An environment on this Python with nothing in it."""
        output([UV, "venv", "--quiet", "--python", sys.executable, folder])
        return cls(folder)

    def install(self, wheel: Path) -> None:
        """Install one file, and nothing that it asks for."""
        output([UV, "pip", "install", "--offline", "--no-deps", "--python", self.bin / "python", wheel])

    def uninstall(self, name: str) -> None:
        """Take a distribution out."""
        output([UV, "pip", "uninstall", "--python", self.bin / "python", name])

    @property
    def bin(self) -> Path:
        """The folder of its programs."""
        return self.folder / "bin"

    def run(
        self, program: str, *arguments: str | Path, folder: Path, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its programs as a user whose shell has the environment activated; whatever it answers."""
        path = os.pathsep.join([str(self.bin), os.environ["PATH"]])
        unset = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
        given = {name: value for name, value in os.environ.items() if name not in unset}
        return subprocess.run(
            [program if "/" in program else self.bin / program, *arguments],
            cwd=folder,
            env={**given, "VIRTUAL_ENV": str(self.folder), "PATH": path, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
        )


def python(version: str) -> Path:
    """An interpreter of this version on this machine; the test is skipped where there is none."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    path = os.pathsep.join([*map(str, sorted(versions.glob(f"{version}.*/bin"))), os.environ["PATH"]])
    find: list[str | Path] = [UV, "python", "find", "--system", "--no-python-downloads", version]
    try:
        return Path(output(find, environ={"PATH": path}))
    except SetupError as error:
        pytest.skip(f"no Python {version} on this machine: {error}")
