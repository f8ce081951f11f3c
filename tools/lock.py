"""Writes the locked requirement files anew, with hashes and without any index address: they install from any mirror.

``python -m tools.lock`` runs inside the environment, whose uv does the work. A release that is already locked stays;
``--upgrade`` takes the newest ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import python_env
from tools.run import ROOT, SetupError, output

LOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    python_env.BOOTSTRAP_LOCK: ("--group", "bootstrap"),
    python_env.LOCK: (
        *("pyproject.toml", "--extra", "launcher"),
        *("--group", "build", "--group", "test", "--group", "lint"),
    ),
    python_env.OLDEST_LOCK: ("--group", "build", "--group", "test-launcher", "--group", "oldest"),
    python_env.SYSTEM_LOCK: ("pyproject.toml", "--group", "build", "--group", "test-system"),
    python_env.DOCS_LOCK: ("--group", "build", "--group", "docs"),
    python_env.LINTERS_LOCK: ("--group", "linters"),
    python_env.FRAMEWORKS_LOCK: (
        *("pyproject.toml", "--extra", "launcher", "--constraint", python_env.LOCK),
        *("--group", "build", "--group", "test-launcher", "--group", "frameworks"),
    ),
}
"""What goes into each file, as arguments of ``uv pip compile``.

The frameworks run on the torch of ``make test``; the linters do not go with what builds the project.
"""


def main() -> int:
    """Write all files; 0 when done, 1 with the resolver's last words when not."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description="Writes the locked requirement files.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest releases")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    options = [
        "--quiet",
        "--universal",
        "--generate-hashes",
        "--no-emit-index-url",
        "--python-version",
        python_env.OLDEST,
    ]
    uv = str(Path(sys.executable).with_name("uv"))
    try:
        for lock, contents in LOCKS.items():
            command = [uv, "pip", "compile", *options, *upgrade, *contents, "--output-file", lock]
            output(command, folder=ROOT, environ={"UV_CUSTOM_COMPILE_COMMAND": "make lock"})
            print(f"wrote {lock}")
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
