"""Debian's packages that the test cluster needs, by name: which are missing, and installing them where that may be.

``python3 -m tools.debian`` installs what is missing as root on Debian or Ubuntu, and else says what to install.
Standard library only.
"""

from __future__ import annotations

import os
import shutil
import sys

from tools import modules
from tools.run import SetupError, output

MISSING = "not installed"


def packages() -> tuple[str, ...]:
    """The packages, by name."""
    return tuple((modules.HERE / "debian.txt").read_text().split())


def installed(package: str) -> str:
    """The version that is installed, or that none is."""
    try:
        state, _, version = output(
            ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", package]
        ).partition(" ")
    except SetupError:
        return MISSING
    return version if state == "installed" else MISSING


def commands(missing: tuple[str, ...], *, root: bool, apt: bool) -> tuple[tuple[str, ...], ...]:
    """What to run to install the missing packages.

    Raises:
        SetupError: they are not to be installed from here; the message names them.
    """
    if not missing:
        return ()
    if not (root and apt):
        message = f"The test cluster needs {', '.join(missing)}. As root on Debian: apt-get install {' '.join(missing)}"
        raise SetupError(message)
    return ("apt-get", "update", "-qq"), ("apt-get", "install", "-qq", "--no-install-recommends", *missing)


def main() -> int:
    """Install what is missing; 0 when all is there, 1 with the reason when not."""
    missing = tuple(package for package in packages() if installed(package) == MISSING)
    try:
        for command in commands(missing, root=os.geteuid() == 0, apt=shutil.which("apt-get") is not None):
            output(command, environ={"DEBIAN_FRONTEND": "noninteractive"})
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
