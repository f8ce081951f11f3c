"""What the Go module files of this folder say: which tools there are, their versions, where a build belongs.

Every folder beside this file that holds a ``go.mod`` is one tool: its ``go.mod`` is the pin, its ``tools.go`` names
the commands, if there are any. No version is written anywhere else. This module reads files and decides; it starts
nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent

STAMPS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes": (
        "k8s.io/component-base/version.gitVersion=v{version}",
        "k8s.io/component-base/version.gitMajor={major}",
        "k8s.io/component-base/version.gitMinor={minor}",
        "k8s.io/client-go/pkg/version.gitVersion=v{version}",
    ),
    "metrics-server": ("k8s.io/client-go/pkg/version.gitVersion=v{version}",),
    "pulumi": ("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",),
    **dict.fromkeys(
        ("pulumi-language-go", "pulumi-language-nodejs", "pulumi-language-python"),
        ("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",),
    ),
}
"""Variables the linker sets: a program built outside its own release process else calls itself v0.0.0."""


@dataclasses.dataclass(frozen=True)
class Script:
    """A file of another tool's module that must lie beside a program."""

    tool: str
    """The tool whose ``go.mod`` pins the module."""
    module: str
    path: str


SCRIPTS: Final[Mapping[str, Script]] = {
    "pulumi-language-python": Script(
        tool="pulumi",
        module="github.com/pulumi/pulumi/sdk/v3",
        path="python/cmd/pulumi-language-python-exec",
    ),
}
"""The language host comes from an old release that still carries it; the script it starts must be the CLI's own."""


@dataclasses.dataclass(frozen=True)
class Tool:
    """One Go module of ours and the commands it pins."""

    folder: Path
    packages: tuple[str, ...]
    """Import paths of the commands, as ``tools.go`` names them; none where only files of the module are read."""
    version: str
    """Version of the module that holds the commands or the files, without the ``v``."""

    @property
    def name(self) -> str:
        """The tool's name: that of its folder."""
        return self.folder.name

    @property
    def script(self) -> Script | None:
        """What must lie beside the programs, if anything."""
        return SCRIPTS.get(self.name)

    @property
    def programs(self) -> tuple[str, ...]:
        """File names that ``go build`` gives the commands, and the script beside them."""
        built = tuple(package.rsplit("/", 1)[-1] for package in self.packages)
        return (*built, Path(self.script.path).name) if self.script else built


def pins(go_mod: str) -> dict[str, str]:
    """Versions that a ``go.mod`` text requires, by module."""
    return dict(re.findall(r"^(?:require )?\s*([\w\-]+\.[\w.\-/]+) (v\S+)", go_mod, re.MULTILINE))


def commands(tools_go: str) -> tuple[str, ...]:
    """Import paths that a ``tools.go`` text names."""
    return tuple(re.findall(r'^\s*(?:import )?_ "([^"]+)"', tools_go, re.MULTILINE))


def load(folder: Path) -> Tool:
    """Read one tool's module files."""
    packages = commands((folder / "tools.go").read_text())
    required = pins((folder / "go.mod").read_text())
    holds = [m for m in required if f"{packages[0]}/".startswith(f"{m}/")] if packages else required
    module = max(holds, key=len)
    return Tool(folder=folder, packages=packages, version=required[module].removeprefix("v"))


def load_all(folder: Path = HERE) -> dict[str, Tool]:
    """All tools by name, those with the most commands first: they take longest to build."""
    tools = [load(path.parent) for path in sorted(folder.glob("*/go.mod"))]
    return {tool.name: tool for tool in sorted(tools, key=lambda tool: -len(tool.packages))}


def cache_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Where built programs are kept: under ``ELASTIC_INFRA_CACHE``, else under the user's cache folder."""
    if own := environ.get("ELASTIC_INFRA_CACHE"):
        return Path(own).absolute() / "tools"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "elastic-infra" / "tools"


def linker_flags(tool: Tool) -> str:
    """What ``-ldflags`` gets: no symbols, and the version stamps."""
    major, minor, *_ = tool.version.split(".")
    stamps = (stamp.format(version=tool.version, major=major, minor=minor) for stamp in STAMPS.get(tool.name, ()))
    return " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in stamps)])


def checksum(tool: Tool, go_version: str) -> str:
    """Twelve hex digits that change with the pins, the flags and the Go that builds."""
    folders = [tool.folder, *([tool.folder.parent / tool.script.tool] if tool.script else [])]
    digest = hashlib.sha256(f"{go_version}\0{linker_flags(tool)}".encode())
    for file in (folder / name for folder in folders for name in ("go.mod", "go.sum", "tools.go")):
        digest.update(b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def built_folder(tool: Tool, cache: Path, go_version: str) -> Path:
    """The folder that holds, or would hold, this tool's programs."""
    return cache / f"{tool.name}-{checksum(tool, go_version)}"


def is_built(tool: Tool, folder: Path) -> bool:
    """Whether every program of the tool is there."""
    return all((folder / program).is_file() for program in tool.programs)
