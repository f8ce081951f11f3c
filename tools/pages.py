"""Holds the pages of the benchmarks' results against the figures that they are made of.

    python -m tools.pages [--write]

Prints the name of each page that differs from what its JSON makes, and then exits 1. With ``--write`` the page is made
again: nothing is measured for that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.common import results
from tools.run import ROOT

MODULES: Final = {
    "gpu": "benchmarks.gpu.report",
    "launcher": "benchmarks.launcher.report",
    "many_jobs": "benchmarks.many_jobs.report",
    "training": "benchmarks.training.report",
}
"""By a file's folder below ``benchmarks``, or by its path there: the module whose ``document`` makes the page."""
WITHOUT_PAGE: Final = {"headline/RESULTS.json"}
"""Figures that only programs read."""


def main(arguments: Sequence[str]) -> int:
    """Compare, print what differs, and write on request."""
    differs = False
    for path in figures():
        page, right = results.page(path), document(path)
        if not page.exists() or page.read_text() != right:
            differs = True
            print(page.relative_to(ROOT))
            if "--write" in arguments:
                page.write_text(right)
    return int(differs and "--write" not in arguments)


def figures() -> list[Path]:
    """The committed files of which a page is made."""
    return [path for path in sorted(ROOT.glob("benchmarks/*/*.json")) if _name(path) not in WITHOUT_PAGE]


def document(path: Path) -> str:
    """The page of these figures."""
    name = _name(path)
    module = importlib.import_module(MODULES.get(name) or MODULES[path.parent.name])
    text: str = module.document(results.load(path))
    return text


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
