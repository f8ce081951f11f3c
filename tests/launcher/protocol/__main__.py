"""Explores the membership protocol's scenarios one by one, and writes how large each is.

python -m tests.launcher.protocol --out benchmarks/launcher/CHECKER.md

Each scenario has a process of its own, so that the memory of one is free for the next. The page is written after each:
a run that is stopped has what it has found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.launcher.protocol import checker
from tests.launcher.protocol.test_model import BEYOND, DEEP, FIRST, LIMIT, MOVES, SCENARIOS, explore

EVERY = SCENARIOS | MOVES | DEEP | BEYOND


@dataclass(frozen=True)
class Row:
    """What is known of one scenario after its exploration."""

    name: str
    states: str
    transitions: str
    seconds: float


def main() -> int:
    """Explore, and write the page."""
    options = _parser().parse_args()
    rows: list[Row] = []
    chosen = [name for name in EVERY if options.only is None or options.only in name]
    for name in chosen:
        rows.append(_explored(name, FIRST if name in BEYOND else options.limit))
        print(rows[-1], flush=True)
        options.out.write_text(page(rows, len(chosen)))
    return 0


def page(rows: list[Row], chosen: int) -> str:
    """The page about the scenarios that were explored so far."""
    return "\n".join(
        [
            "# What the checker explored",
            "",
            "Every reachable state of each scenario, with [the laws](../../docs/protocol.md#what-the-checker-explores)",
            "in each and a way out of each; a scenario of which a law is broken would have ended the command.",
            "",
            "    python -m tests.launcher.protocol --out benchmarks/launcher/CHECKER.md",
            "",
            f"{len(rows)} of {chosen} scenarios, Python {sys.version.split()[0]}. Where the number of states is a",
            "lower bound, the scenario was left there: the laws held in the states that were seen, those with the",
            "shortest ways to them, and no way out of them was looked for.",
            "",
            *_table("In `make test`", [row for row in rows if row.name in SCENARIOS | MOVES]),
            *_table("Deeper, in `make soak`", [row for row in rows if row.name in DEEP]),
            *_table("Out of reach, the first states in `make soak`", [row for row in rows if row.name in BEYOND]),
        ]
    )


def _table(title: str, rows: list[Row]) -> list[str]:
    head = [f"## {title}", "", "| scenario | states | transitions | seconds |", "| --- | --- | --- | --- |"]
    return [*head, *(f"| {row.name} | {row.states} | {row.transitions} | {row.seconds:.0f} |" for row in rows), ""]


def _explored(name: str, limit: int) -> Row:
    begin = time.monotonic()
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        states, transitions = process.submit(_explore, name, limit).result()
    return Row(name, states, transitions, time.monotonic() - begin)


def _explore(name: str, limit: int) -> tuple[str, str]:
    """The numbers of states and transitions as text; of a scenario beyond the limit only that.

    Raises:
        BrokenError: a state breaks a law, or has no way out.
    """
    try:
        explored = explore(EVERY[name], limit)
    except checker.TooManyError:
        return f"over {limit:,}", ""
    return f"{explored.states:,}", f"{explored.transitions:,}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.launcher.protocol", description=__doc__)
    parser.add_argument("--only", help="scenarios whose name holds this text")
    parser.add_argument("--limit", type=int, default=LIMIT, help="of states, which a scenario may have")
    parser.add_argument("--out", type=Path, required=True, help="file for the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
