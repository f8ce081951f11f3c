"""The headline table in five minutes: this launcher beside tuned torchrun, and beside the ratios that are committed.

    python -m benchmarks.headline [--pairs N] [--write]

Exit code 1: a ratio is more than 25 % worse than the committed one, or this launcher lost a job. ``--write`` replaces
RESULTS.json with what was measured. Rows of plain torchrun, and those that take torchrun minutes, are not measured:
they come from the launcher's own table (``benchmarks/launcher/RESULTS.md``) and are marked. Run it on a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.headline import table
from benchmarks.headline.table import Cell
from benchmarks.launcher import arms, machine, scenario

LAUNCHERS_TABLE: Final = Path(__file__).parents[1] / "launcher" / "RESULTS.md"
RESULTS: Final = Path(__file__).with_name("RESULTS.json")
LOSS: Final = 1.25
"""A ratio may be so many times the committed one: medians of so few runs differ by less than that from time to time."""
PAIRS: Final = 2
CHAINS: Final = (scenario.GROW, scenario.CRASH)
Found = Mapping[str, Mapping[str, list[float | None]]]
"""Seconds by row and by arm, None for a job that was lost."""


def main(arguments: list[str]) -> int:
    """Measure, print the table, and hold the ratios against the committed ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headline")
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"of runs, by default {PAIRS}")
    parser.add_argument("--write", action="store_true", help="replace the committed ratios")
    options = parser.parse_args(arguments)
    facts = machine.facts(machine.import_seconds())[:-1]
    print(*facts, sep="\n", flush=True)
    found = measured(options.pairs)
    print(f"\n{shown(found, LAUNCHERS_TABLE.read_text())}\n")
    if options.write:
        RESULTS.write_text(json.dumps({"machine": facts, "seconds": found}, indent=2) + "\n")
    worse = losses(ratios(committed_seconds()), ratios(found))
    print(*worse or ["No ratio is more than 25 % worse than the committed one."], sep="\n")
    return int(bool(worse))


def committed_seconds() -> Found:
    """What the last measurement that was written found."""
    seconds: Found = json.loads(RESULTS.read_text())["seconds"]
    return seconds


def measured(pairs: int) -> dict[str, dict[str, list[float | None]]]:
    """Both launchers in turn; one round more of this one, whose rounds are short."""
    found: dict[str, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    for number in range(pairs + 1):
        for chain in CHAINS:
            for arm in (arms.OURS, *([arms.TUNED] if number < chain_rounds(chain, pairs) else [])):
                for sample in scenario.run(chain, arm, print):
                    found[sample.row][sample.arm].append(sample.value)
                    print(f"  {sample.arm:5}  {sample.row}: {sample.value}", flush=True)
    return {row: dict(by_arm) for row, by_arm in found.items()}


def chain_rounds(chain: scenario.Chain, pairs: int) -> int:
    """Jobs of torchrun: one is enough where events repeat in it."""
    return 1 if chain.repeat > 1 else pairs


def ratios(found: Found) -> dict[str, float | None]:
    """This launcher's median as a part of tuned torchrun's, by row; None where this launcher lost a job.

    Rows in which torchrun lost every job have no ratio.
    """
    parts: dict[str, float | None] = {}
    for row, by_arm in found.items():
        ours, tuned = by_arm["ours"], [value for value in by_arm["tuned"] if value is not None]
        if None in ours:
            parts[row] = None
        elif tuned:
            parts[row] = statistics.median(value for value in ours if value is not None) / statistics.median(tuned)
    return parts


def losses(before: Mapping[str, float | None], now: Mapping[str, float | None]) -> list[str]:
    """Each row that is worse than it may be, in a line."""
    lines = []
    for row, part in now.items():
        committed = before.get(row)
        if part is None:
            lines.append(f"{row}: this launcher lost the job")
        elif committed is not None and part > LOSS * committed:
            lines.append(f"{row}: 1/{1 / part:.1f} of tuned torchrun, 1/{1 / committed:.1f} is committed")
    return lines


def shown(found: Found, results: str) -> str:
    """The headline table with what was measured now; all else as committed, in brackets."""
    cells: dict[str, dict[str, Any]] = {
        row: {arm: f"({cell})" for arm, cell in by_arm.items()} for row, by_arm in table.committed(results).items()
    }
    for row, by_arm in found.items():
        for arm, values in by_arm.items() if row in cells else ():
            known = [value for value in values if value is not None]
            cells[row][arm] = Cell(statistics.median(known) if known else None, None in values)
    return f"{table.markdown(cells)}\n\nSeconds without a step. In brackets: committed, and not measured now."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
