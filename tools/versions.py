"""Prints every pinned version: Go tools from their module files, Python packages from the lock, Debian's by name.

Standard library only.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from typing import Final

from tools import debian, modules, python_env
from tools.run import ROOT

SHOWN: Final = ("pulumi", "pulumi-kubernetes", "pydantic", "torch", "pytest", "mypy", "ruff")
"""Python packages whose version tells most; the lock has the others."""


def locked(requirements: str, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Name and version of each wanted package in a lock; several versions where they depend on the Python."""
    found = dict.fromkeys(re.findall(r"^([\w.\-]+)==(\S+)", requirements, re.MULTILINE))
    return [(name, " or ".join(version for key, version in found if key == name)) for name in names]


def _rows() -> Iterator[tuple[str, str, str]]:
    yield "python", "", platform.python_version()
    for name, version in locked((ROOT / python_env.LOCK).read_text(), SHOWN):
        yield "python", name, version
    for tool in sorted(modules.load_all().values(), key=lambda tool: tool.name):
        yield "go", tool.name, tool.version
    for package in debian.packages():
        yield "debian", package, debian.installed(package)


def main() -> int:
    """Print one line a version."""
    for kind, name, version in _rows():
        print(f"{kind:7} {name:25} {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
