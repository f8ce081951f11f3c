"""Holds the pages and pictures of the benchmarks' results against the figures that they are made of.

The page of all results is made of the other pages, and so comes last.

    python -m tools.pages [--write]

Prints the name of each one that differs from what its JSON makes, and then exits 1. With ``--write`` it is made again:
nothing is measured for that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.common import results
from tools.run import ROOT

MODULES: Final = {
    "cluster/IN_PLACE.json": "benchmarks.cluster.in_place",
    "cluster/INDEX_LOSSES.json": "benchmarks.cluster.index_losses",
    "cluster/RESTART_POLICY.json": "benchmarks.cluster.restart_policy",
    "cluster/SOAK.json": "benchmarks.cluster.soak",
    "cluster/START.json": "benchmarks.cluster.start",
    "cluster/TARGETS.json": "benchmarks.cluster.targets",
    "headline/RESULTS.json": "benchmarks.headline.table",
    "launcher/CHECKER.json": "tests.launcher.protocol.page",
    "launcher/SOAK.json": "tests.launcher.soak.report",
    "launcher/SOAK_2_WORKERS.json": "tests.launcher.soak.report",
    "launcher/SOAK_8_WORKERS.json": "tests.launcher.soak.report",
    "rendezvous/CHAOS.json": "benchmarks.rendezvous.chaos",
    "rendezvous/LIMITS.json": "benchmarks.rendezvous.limited",
    "training/SOAK.json": "tests.launcher.soak_in_place.report",
    "training/SOAK_SHARDED.json": "tests.launcher.soak_in_place.report",
}
"""By a file's path below ``benchmarks``: the module whose ``document`` makes the page. It is that of the folder's
``report`` otherwise, or of the program where there is none."""
PICTURES: Final = {
    "docs/scale.svg": (("rendezvous/RESULTS.json", "rendezvous/LIMITS.json"), "benchmarks.rendezvous.picture")
}
"""The figures of each picture, and the module whose ``document`` draws them."""


class Page(NamedTuple):
    """A page or a picture that is made of figures."""

    path: Path
    module: str
    """Its ``document`` makes the text."""
    figures: tuple[Path, ...] = ()
    """None of the page that is made of all others."""

    def text(self) -> str:
        """What the page is to say."""
        found = [results.load(path) for path in self.figures] or [_written()]
        text: str = importlib.import_module(self.module).document(*found)
        return text


def main(arguments: Sequence[str]) -> int:
    """Compare, print what differs, and write on request."""
    differs = False
    for page in pages():
        right = page.text()
        if not page.path.exists() or page.path.read_text() != right:
            differs = True
            print(page.path.relative_to(ROOT))
            if "--write" in arguments:
                page.path.write_text(right)
    return int(differs and "--write" not in arguments)


def pages() -> list[Page]:
    """All that are made of committed figures."""
    names = {f"{path.parent.name}/{path.name}": path for path in sorted(ROOT.glob("benchmarks/*/*.json"))}
    return [
        *(Page(results.page(path), MODULES.get(name) or _module(path.parent), (path,)) for name, path in names.items()),
        *(
            Page(ROOT / picture, module, tuple(names[name] for name in figures))
            for picture, (figures, module) in PICTURES.items()
            if names.keys() >= {*figures}
        ),
        Page(ROOT / "benchmarks/RESULTS.md", "benchmarks.common.summary"),
    ]


def _written() -> dict[str, str]:
    """The text of each benchmark's page, by its path below ``benchmarks``."""
    paths = sorted(ROOT.glob("benchmarks/*/*.md"))
    return {f"{path.parent.name}/{path.name}": path.read_text() for path in paths}


def _module(folder: Path) -> str:
    return f"benchmarks.{folder.name}.{'report' if (folder / 'report.py').exists() else '__main__'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
