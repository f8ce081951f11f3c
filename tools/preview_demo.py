"""Previews an example on a real Pulumi engine; a provider in this process stands in for the cluster.

    python -m tools.preview_demo [FOLDER]     default: examples/quickstart

Needs what the tests need, so it runs after set-up.
"""

from __future__ import annotations

import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.engine.engine import Engine, Outcome
from tests.engine.provider import KubernetesProvider, serving

ROOT: Final = Path(__file__).resolve().parent.parent


def preview(example: Path, pulumi: Path) -> Outcome:
    """What `pulumi up` would do with an example's program, on an empty stack."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(KubernetesProvider()) as providers,
        Engine.started(pulumi, Path(folder), providers) as engine,
    ):
        return engine.stack().preview(lambda: _run(example), suppress_progress=True)


def _run(example: Path) -> None:
    runpy.run_path(str(example / "__main__.py"), run_name="__main__")


def main(arguments: list[str]) -> int:
    """Print the preview; 0 also where there is no engine, which is said in one line."""
    example = Path(arguments[0]) if arguments else ROOT / "examples/quickstart"
    pulumi = shutil.which("pulumi") or shutil.which("pulumi", path=Path(sys.executable).parent)
    if pulumi is None:
        print("No Pulumi engine here, so there is no preview. `make setup` tries to get one.")
        return 0
    outcome = preview(example, Path(pulumi))
    print(outcome.text)
    return int(outcome.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
