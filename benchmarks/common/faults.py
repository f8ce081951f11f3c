"""What runs under random faults share: whether each law held, what each kind of fault cost, and how that is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.results import Results, save, table
from benchmarks.launcher.measure import Summary


def tell(found: Results, document: Callable[[Results], str], out: Path | None) -> int:
    """Print the page of a run, and on request keep it with the figures; the exit code, 1 with a law that did not hold.

    Args:
        found: the figures; ``laws`` has what broke each.
        document: makes the page of them.
        out: JSON file of the figures, with the page beside it.
    """
    print(save(out, found, document) if out else document(found))
    broken = {law: lines for law, lines in found["laws"].items() if lines}
    for law, lines in broken.items():
        print(f"NOT KEPT: {law}", *lines[:20], sep="\n  ", file=sys.stderr)
    return int(bool(broken))


def laws(found: Mapping[str, Sequence[str]]) -> str:
    """A row for each law.

    Args:
        found: what broke it.
    """
    return table([("law", "held"), *((law, "NO" if broken else "yes") for law, broken in found.items())])


def costs(faults: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> str:
    """A row for each kind that struck: how often, how many of them in the middle of a change, and its outages.

    Args:
        faults: each with its kind, whether it was ``paired`` with the one before, and the ``seconds`` of its outage.
        kinds: in the order of the rows.
    """
    head = ("fault", "n", "of these during a change", "median outage", "p95", "longest")
    return table([head, *_rows(faults, kinds)])


def _rows(faults: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> Iterator[list[str]]:
    for kind in kinds:
        mine = [fault for fault in faults if fault["kind"] == kind]
        if mine:
            seconds = Summary(tuple(fault["seconds"] for fault in mine), {})
            counts = (len(mine), sum(fault["paired"] for fault in mine))
            figures = (seconds.median, seconds.p95, max(seconds.values))
            yield [kind, *map(str, counts), *(f"{figure:.1f} s" for figure in figures)]
