"""Runs every benchmark that needs neither a cluster nor a GPU, one after the other, so that none disturbs another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def programs() -> list[str]:
    """Modules of this folder, then its folders with a program, less those that need a cluster or a GPU."""
    files = [path.stem for path in HERE.glob("*.py") if not path.stem.startswith("__")]
    folders = [path.parent.name for path in HERE.glob("*/__main__.py") if path.parent.name not in {"cluster", "gpu"}]
    return [f"benchmarks.{name}" for name in (*sorted(files), *sorted(folders))]


def main() -> int:
    """Run them; 1 when one of them failed."""
    failed = False
    for program in programs():
        print(f"\n== {program}\n", flush=True)
        failed |= subprocess.run([sys.executable, "-m", program], cwd=HERE.parent, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
