"""Gets a Pulumi engine: the one on PATH, one had before, the official installer's, or one built from the pinned module.

Standard library only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools import build, modules
from tools.run import Say, SetupError, needed, output

INSTALLER: Final = "https://get.pulumi.com"
FETCH_SECONDS: Final = 15
"""Bound for the installer's script: a few kilobytes, or the network is not there."""
INSTALL_SECONDS: Final = 300
"""Bound for what the script then downloads: some 100 MB."""

Way = Callable[[], Path]


def get(ways: Mapping[str, Way], say: Say) -> Path:
    """The engine that the first way gives which works.

    Raises:
        SetupError: none does; the message has every reason.
    """
    reasons = []
    for name, way in ways.items():
        try:
            program = way()
            say(f"pulumi {output([program, 'version'], limit_seconds=60)}: {name}")
        except SetupError as reason:
            reasons.append(f"{name}: {reason}")
        else:
            return program
    raise SetupError("; ".join(reasons))


def ways_here(cache: Path, path: str, say: Say) -> dict[str, Way]:
    """The ways in their order; ``path`` is where to look first."""
    tool = modules.load_all()["pulumi"]
    installed = cache / f"pulumi-installed-{tool.version}"
    return {
        "on PATH": lambda: Path(needed("pulumi", "It is looked for elsewhere.", path)),
        "installed before": lambda: _existing(installed / "bin/pulumi"),
        "built before": lambda: build.program_path("pulumi", cache, build.go_program()),
        "official installer": lambda: official(tool.version, installed),
        "built from source": lambda: from_source(cache, say),
    }


def official(
    version: str,
    into: Path,
    *,
    url: str = INSTALLER,
    fetch_seconds: float = FETCH_SECONDS,
    install_seconds: float = INSTALL_SECONDS,
) -> Path:
    """Run Pulumi's own installer, away from the user's shell profile.

    Raises:
        SetupError: no curl, no network, or the installer failed or hung.
    """
    curl = needed("curl", "Pulumi's installer needs it.")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "install.sh"
        output([curl, "-fsSL", "--connect-timeout", "5", "-o", script, url], limit_seconds=fetch_seconds)
        options = ("--version", version, "--install-root", str(into), "--no-edit-path")
        output(["sh", script, *options], folder=Path(folder), limit_seconds=install_seconds)
    return _existing(into / "bin/pulumi")


def from_source(cache: Path, say: Say) -> Path:
    """Build the CLI, and the language host that the command line needs for Python programs.

    Raises:
        SetupError: there is no Go, or the CLI does not build.
    """
    go = build.go_program()
    tools = modules.load_all()
    failures = build.build_all([tools["pulumi"], tools["pulumi-language-python"]], cache, go, say)
    for failure in failures:
        say(str(failure))
    return build.program_path("pulumi", cache, go)


def language_host(program: Path, cache: Path) -> tuple[Path, ...]:
    """What a Python program run by the command line needs on PATH beside this engine.

    Nothing for an engine that brings it along, nor where it could not be built.
    """
    tool = modules.load_all()["pulumi-language-python"]
    if (program.parent / tool.programs[0]).exists():
        return ()
    try:
        return tuple(build.program_path(name, cache, build.go_program()) for name in tool.programs)
    except SetupError:
        return ()


def _existing(program: Path) -> Path:
    if program.is_file():
        return program
    message = f"{program} is not there"
    raise SetupError(message)
