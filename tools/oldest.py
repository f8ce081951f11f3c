"""Makes ``.venv-oldest``: the oldest torch that the launcher claims, on the oldest Python that this machine has.

``python -m tools.oldest`` runs inside ``.venv``, whose uv does the work. Quick when done.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from tools import python_env
from tools.run import ROOT, Say, SetupError, output, stopwatch

VENV: Final = ROOT / ".venv-oldest"
RECORD: Final = VENV / "setup.txt"


def make(uv: Path, say: Say) -> None:
    """Make the environment anew.

    Raises:
        SetupError: no Python here has that torch, or it cannot be downloaded.
    """
    options = ["venv", "--quiet", "--clear", "--seed", "--no-python-downloads"]
    try:
        output([uv, *options, "--python", python_env.OLDEST, VENV])
    except SetupError:
        say(f"oldest: no Python {python_env.OLDEST} here, so this one is taken")
        output([uv, *options, "--python", sys.executable, VENV])
    say("oldest: installing the oldest torch, gigabytes the first time")
    python_env.install(VENV, say, python_env.OLDEST_LOCK)


def main() -> int:
    """Make the environment unless it is there; 0 when it is, 1 with the reason when not."""
    checksum = hashlib.sha256((ROOT / python_env.OLDEST_LOCK).read_bytes()).hexdigest()
    wanted = f"{ROOT} {checksum}"
    if RECORD.exists() and RECORD.read_text() == wanted:
        return 0
    try:
        make(Path(sys.executable).with_name("uv"), stopwatch())
    except SetupError as error:
        print(f"Set-up of the oldest torch failed: {error}", file=sys.stderr)
        return 1
    RECORD.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
