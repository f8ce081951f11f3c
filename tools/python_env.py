"""Makes ``.venv``: every package from the hashed lock, and the project itself, editable.

An installer of the machine installs the pinned uv, and uv installs the rest from the index that pip is
configured for. Standard library only.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from tools.run import Say, SetupError, output

OLDEST: Final = "3.10"
"""The oldest Python that the lock files serve."""
BOOTSTRAP_LOCK: Final = "requirements/bootstrap.txt"
LOCK: Final = "requirements/dev.txt"
OLDEST_LOCK: Final = "requirements/oldest.txt"
SYSTEM_LOCK: Final = "requirements/system.txt"
FRAMEWORKS_LOCK: Final = "requirements/frameworks.txt"
DOCS_LOCK: Final = "requirements/docs.txt"
LINTERS_LOCK: Final = "requirements/linters.txt"

First = Literal["venv", "uv", "pip"]
"""What makes the environment: ``venv`` with its own pip, a uv on PATH, or a pip that installs into another place."""

_UV_NAMES: Final[Mapping[str, str]] = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""pip's settings and uv's variables for them, so that a mirror is configured once."""


def first_installer(*, ensurepip: bool, uv: bool, pip: bool) -> First:
    """What to start from on this machine.

    Raises:
        SetupError: nothing here can install a package.
    """
    if ensurepip:
        return "venv"
    if uv:
        return "uv"
    if pip:
        return "pip"
    message = "This Python has neither ensurepip nor pip. Install them (Debian, Ubuntu: apt-get install python3-venv)."
    raise SetupError(message)


def installer_here() -> First:
    """``first_installer`` for the running Python.

    Raises:
        SetupError: as ``first_installer``.
    """
    return first_installer(
        ensurepip=importlib.util.find_spec("ensurepip") is not None,
        uv=shutil.which("uv") is not None,
        pip=importlib.util.find_spec("pip") is not None,
    )


def uv_environ(pip_config: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that give uv what ``pip config list`` printed, except those the user has set for uv."""
    found: dict[str, str] = {}
    for line in sorted(pip_config.splitlines(), key=_section_rank):
        key, _, value = line.partition("=")
        name = _UV_NAMES.get(key.rsplit(".", 1)[-1])
        if name and value:
            found[name] = " ".join(ast.literal_eval(value).split())
    return {name: value for name, value in found.items() if name not in environ}


def is_there(venv: Path) -> bool:
    """Whether there is an environment with a uv for it; its packages may be out of date."""
    return (venv / "bin/python").exists() and _uv(venv) is not None


def make(venv: Path, first: First, *, clear: bool) -> None:
    """Make the environment, with the pinned uv in it where the machine has none.

    Raises:
        SetupError: it cannot be made, and the message has the installer's last words; or what would be cleared is
            another checkout's.
    """
    if clear and venv.is_symlink():
        message = f"{venv} is a link to an environment that was made for another checkout. Delete the link."
        raise SetupError(message)
    options = ["--clear"] if clear and venv.exists() else []
    lock = ["install", "--quiet", "--require-hashes", "-r", BOOTSTRAP_LOCK]
    if first == "venv":
        output([sys.executable, "-m", "venv", *options, venv])
        output([venv / "bin/python", "-m", "pip", *lock])
    elif first == "uv":
        output(["uv", "venv", "--quiet", *options, "--python", sys.executable, venv])
    else:
        output([sys.executable, "-m", "venv", "--without-pip", *options, venv])
        output([sys.executable, "-m", "pip", "--python", venv / "bin/python", *lock])


def install(venv: Path, say: Say, lock: str = LOCK, *, with_project: bool = True) -> None:
    """Bring an environment to a lock and install the project into it, by uv, else by pip.

    Args:
        with_project: False where the lock does not go with what builds the project.

    Raises:
        SetupError: neither can; the message has the reasons.
    """
    python = venv / "bin/python"
    project = ["--no-deps", "--no-build-isolation", "--editable", "."]
    try:
        uv, environ = _uv(venv) or "uv", settings_for_uv(python)
        output([uv, "pip", "sync", "--python", python, "--require-hashes", lock], environ=environ)
        if with_project:
            output([uv, "pip", "install", "--python", python, *project], environ=environ)
    except SetupError as uv_failure:
        say(f"python: {uv_failure}; trying pip")
        output([python, "-m", "pip", "install", "--no-deps", "--require-hashes", "-r", lock])
        if with_project:
            output([python, "-m", "pip", "install", *project])


def add(venv: Path, packages: Sequence[str]) -> None:
    """Install more into an environment by uv, in the newest releases that fit: no lock holds them.

    Args:
        packages: arguments of ``uv pip install``.

    Raises:
        SetupError: one cannot be had; the message has the reason.
    """
    python = venv / "bin/python"
    output([_uv(venv) or "uv", "pip", "install", "--python", python, *packages], environ=settings_for_uv(python))


def settings_for_uv(python: Path) -> dict[str, str]:
    """Variables with which uv installs from where this Python's pip does, and downloads no Python."""
    try:
        config = output([python, "-m", "pip", "config", "list"])
    except SetupError:  # an environment that a uv made holds no pip, so uv was configured by itself
        config = ""
    return {"UV_PYTHON_DOWNLOADS": "never", **uv_environ(config, os.environ)}


def _section_rank(line: str) -> int:
    """The order of pip: what the environment says wins over ``[install]``, which wins over ``[global]``."""
    return 2 if line.startswith(":env:") else 1 if line.startswith("install.") else 0


def _uv(venv: Path) -> str | None:
    beside = (folder / "uv" for folder in (venv / "bin", Path(sys.executable).parent))
    return next((str(uv) for uv in beside if uv.exists()), shutil.which("uv"))
