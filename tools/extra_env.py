"""Makes an environment beside ``.venv``: another Python, another torch, more packages. Quick when done.

``python -m tools.extra_env oldest`` makes ``.venv-oldest``: the oldest torch that the launcher claims, on the oldest
Python that this machine has. ``python -m tools.extra_env system`` makes ``.venv-system``: the system's own Python,
which Linux distributions keep at one patch release for years, without torch. ``python -m tools.extra_env frameworks``
makes ``.venv-frameworks``: packages of others that train with torch. ``python -m tools.extra_env docs`` makes
``.venv-docs``: what builds the site. ``python -m tools.extra_env linters`` makes ``.venv-linters``: what lints
manifests. ``python -m tools.extra_env torch-2.9`` makes ``.venv-torch-2.9``: a torch that is chosen when it is made, so
that no lock holds it and what it brings. All run inside ``.venv``, whose uv does the work.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools import python_env
from tools.run import ROOT, Say, SetupError, output, stopwatch

SYSTEM_PYTHON: Final = os.environ.get("SYSTEM_PYTHON", "/usr/bin/python3")


@dataclasses.dataclass(frozen=True)
class Extra:
    """An environment to make.

    Attributes:
        folder: its place in the checkout.
        lock: what is installed into it.
        pythons: names or paths of interpreters, the first that is there is taken.
        with_project: whether the project is installed too.
        unlocked: what is installed besides, in the newest release that fits, as arguments of ``uv pip install``.
    """

    folder: Path
    lock: str
    pythons: Sequence[str]
    with_project: bool = True
    unlocked: Sequence[str] = ()

    def fingerprint(self) -> str:
        """What the environment was made for: another checkout or lock makes it anew."""
        lock = hashlib.sha256((ROOT / self.lock).read_bytes()).hexdigest()
        return " ".join([str(ROOT), lock, *self.unlocked])


EXTRAS: Final[Mapping[str, Extra]] = {
    "oldest": Extra(ROOT / ".venv-oldest", python_env.OLDEST_LOCK, (python_env.OLDEST, sys.executable)),
    "system": Extra(ROOT / ".venv-system", python_env.SYSTEM_LOCK, (SYSTEM_PYTHON,)),
    "docs": Extra(ROOT / ".venv-docs", python_env.DOCS_LOCK, (sys.executable,)),
    "linters": Extra(ROOT / ".venv-linters", python_env.LINTERS_LOCK, (sys.executable,), with_project=False),
    "frameworks": Extra(ROOT / ".venv-frameworks", python_env.FRAMEWORKS_LOCK, (sys.executable,)),
}


def find(name: str) -> Extra:
    """The environment of this name.

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    if name in EXTRAS:
        return EXTRAS[name]
    if version := re.fullmatch(r"torch-(\d+\.\d+)", name):
        unlocked = ("--group", "test-launcher", f"torch=={version[1]}.*")
        return Extra(ROOT / f".venv-{name}", python_env.SYSTEM_LOCK, (sys.executable,), unlocked=unlocked)
    message = f"{name!r} is none of {', '.join(EXTRAS)}, or torch- and a version such as 2.9."
    raise argparse.ArgumentTypeError(message)


def make(extra: Extra, uv: Path, say: Say) -> None:
    """Make the environment anew.

    Raises:
        SetupError: none of its Pythons is here, or a package cannot be had.
    """
    options = ["venv", "--quiet", "--clear", "--seed", "--no-python-downloads", "--python"]
    for python in extra.pythons:
        try:
            output([uv, *options, python, extra.folder])
            break
        except SetupError as error:
            reason = error
            say(f"{extra.folder.name}: no Python {python} here")
    else:
        raise reason
    say(f"{extra.folder.name}: installing {extra.lock}")
    python_env.install(extra.folder, say, extra.lock, with_project=extra.with_project)
    if extra.unlocked:
        say(f"{extra.folder.name}: installing {extra.unlocked[-1]}, which no lock holds")
        python_env.add(extra.folder, extra.unlocked)


def ensure(extra: Extra, uv: Path, say: Say) -> None:
    """Make the environment unless it is there.

    Raises:
        SetupError: as ``make``.
    """
    record = extra.folder / "setup.txt"
    if not record.exists() or record.read_text() != extra.fingerprint():
        make(extra, uv, say)
        record.write_text(extra.fingerprint())


def main() -> int:
    """Make the environment that is asked for; 0 when it is there, 1 with the reason when not."""
    parser = argparse.ArgumentParser(prog="python -m tools.extra_env", description="Makes an environment.")
    parser.add_argument("extra", type=find, help=f"{', '.join(EXTRAS)}, or torch- and a version such as 2.9")
    extra: Extra = parser.parse_args().extra
    try:
        ensure(extra, Path(sys.executable).with_name("uv"), stopwatch())
    except SetupError as error:
        print(f"{extra.folder.name} cannot be made: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
