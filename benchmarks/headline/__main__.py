"""The headline table in five minutes: this launcher beside tuned torchrun, and beside the ratios that are committed.

    python -m benchmarks.headline [--pairs N] [--write]

A ratio is the median of those of single pairs: each run of this launcher and the run of torchrun that follows it, so
that a machine which is busy for a while is so for both. Exit code 1: a ratio is more than 25 % worse than the committed
one, or this launcher lost a job. ``--write`` replaces RESULTS.json and its page with what was measured. Rows of plain
torchrun, and those that take torchrun minutes, are not measured: they come from the launcher's own table
(``benchmarks/launcher/RESULTS.md``) and are marked. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.common import results
from benchmarks.headline import table
from benchmarks.headline.table import Cell, parts, said
from benchmarks.launcher import arms, machine, scenario

LAUNCHERS_TABLE: Final = Path(__file__).parents[1] / "launcher" / "RESULTS.md"
RESULTS: Final = Path(__file__).with_name("RESULTS.json")
LOSS: Final = 1.25
"""A ratio may be so many times the committed one: medians of so few pairs mostly differ by less from time to time."""
PAIRS: Final = 3
"""Of runs of each row, by default: as many as five minutes have room for."""
Found = Mapping[str, Mapping[str, list[float | None]]]
"""Seconds by row and by arm, those of a pair at the same place in both lists; None for a job that was lost."""


def main(arguments: list[str]) -> int:
    """Measure, print the table, and hold the ratios against the committed ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headline")
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"of runs, by default {PAIRS}")
    parser.add_argument("--write", action="store_true", help="replace the committed ratios")
    options = parser.parse_args(arguments)
    committed = ratios(committed_seconds())
    begin = time.monotonic()
    facts = machine.facts(machine.import_seconds(), results.command("benchmarks.headline", arguments))
    print(*facts, sep="\n", flush=True)
    found = measured(options.pairs)
    seconds = round(time.monotonic() - begin)
    print(f"\n{shown(found, LAUNCHERS_TABLE.read_text())}\n")
    print(*compared(found, committed), f"It took {seconds} s.", "", sep="\n")
    if options.write:
        results.save(RESULTS, {"machine": facts, "wall_seconds": seconds, "seconds": found}, table.document)
    worse = losses(committed, ratios(found))
    before = "the one that it replaces" if options.write else "the committed one"
    print(*worse or [f"No ratio is more than 25 % worse than {before}."], sep="\n")
    return int(bool(worse))


def committed_seconds() -> Found:
    """What the last measurement that was written found."""
    seconds: Found = results.load(RESULTS)["seconds"]
    return seconds


def chains(pairs: int) -> tuple[scenario.Chain, ...]:
    """What happens to the jobs; a worker crashes once for each pair in one job, since starts take most of the time."""
    return scenario.GROW, replace(scenario.CRASH, repeat=pairs)


def measured(pairs: int) -> dict[str, dict[str, list[float | None]]]:
    """Both launchers in turn, so many times."""
    found: dict[str, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    for number in range(pairs):
        for chain in chains(pairs):
            for arm in (arms.OURS, arms.TUNED) if number < chain.rounds(pairs) else ():
                for sample in scenario.run(chain, arm, print):
                    found[sample.row][sample.arm].append(sample.value)
                    print(f"  {sample.arm:5}  {sample.row}: {sample.value}", flush=True)
    return {row: dict(by_arm) for row, by_arm in found.items()}


def ratios(found: Found) -> dict[str, float | None]:
    """The median part of each row's pairs; None where this launcher lost a job.

    Rows in which torchrun lost every job have no ratio.
    """
    medians: dict[str, float | None] = {}
    for row, by_arm in found.items():
        if None in by_arm["ours"]:
            medians[row] = None
        elif known := parts(by_arm):
            medians[row] = statistics.median(known)
    return medians


def compared(found: Found, committed: Mapping[str, float | None]) -> list[str]:
    """Each row's ratio with those of its pairs, in a line, beside the committed one."""
    lines = []
    for row, part in ratios(found).items():
        before = committed.get(row)
        known = f" ({said(before)} is committed)" if before else ""
        pairs = ", ".join(map(said, parts(found[row])))
        lines.append(f"{row}: {said(part) if part else 'lost'} of tuned torchrun{known}; pairs: {pairs}")
    return lines


def losses(before: Mapping[str, float | None], now: Mapping[str, float | None]) -> list[str]:
    """Each row that is worse than it may be, in a line."""
    lines = []
    for row, part in now.items():
        committed = before.get(row)
        if part is None:
            lines.append(f"{row}: this launcher lost the job")
        elif committed is not None and part > LOSS * committed:
            lines.append(f"{row}: {said(part)} of tuned torchrun, {said(committed)} is committed")
    return lines


def shown(found: Found, launchers: str) -> str:
    """The headline table with what was measured now; all else as committed, in brackets."""
    cells: dict[str, dict[str, Any]] = {
        row: {arm: f"({cell})" for arm, cell in by_arm.items()} for row, by_arm in table.committed(launchers).items()
    }
    for row, by_arm in found.items():
        for arm, values in by_arm.items() if row in cells else ():
            known = [value for value in values if value is not None]
            cells[row][arm] = Cell(statistics.median(known) if known else None, None in values)
    return f"{table.markdown(cells)}\n\nSeconds without a step. In brackets: committed, and not measured now."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
