"""Changes of members in place, beside a restart of the workers and torchft; snapshots, restores and empty steps.

    python -m benchmarks.training [--sizes MB ...] [--quick] [--kill] [--write]

Arms take turns. ``--quick`` makes fewer rounds: twelve minutes on two processors. ``--kill`` measures the outage of a
killed worker alone, once, in place and by a restart, in four minutes. ``--write`` replaces RESULTS.json and RESULTS.md;
after ``--kill`` the other figures stay. torchft takes part where it is installed (``pip install torchft==0.2.0``). Run
it on a machine that does nothing else, with 16 GB of memory for the largest state.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from benchmarks.launcher import machine
from benchmarks.training import changes, copies, jobs, report, steps
from benchmarks.training.labels import KILL

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
PAGE: Final = Path(__file__).with_name("RESULTS.md")
SIZES: Final = (10, 300, 1000)
"""Megabytes of state."""


def main(arguments: list[str]) -> int:
    """Measure, and print the page."""
    options = _parse(arguments)
    results: dict[str, Any] = {}
    rounds_of = killed(options.sizes) if options.kill else measured(options.sizes, quick=options.quick)
    for results in rounds_of:
        if options.write:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            PAGE.write_text(report.document(results))
    print(f"\n{report.document(results)}")
    return 0


def measured(sizes: list[int], *, quick: bool) -> Iterator[dict[str, Any]]:
    """All figures as they are kept, after each event."""
    arms = [arm for arm in jobs.ARMS if arm != jobs.TORCHFT or importlib.util.find_spec("torchft")]
    facts, largest = _facts(arms, quick=quick), max(sizes)
    begin = time.monotonic()
    empty = {arm: steps.measured(largest, arm) for arm in (jobs.IN_PLACE, jobs.RESTART)}
    saves, restores = copies.measured(largest, 2 if quick else 5)
    print(f"{time.monotonic() - begin:6.0f} s  {saves} {restores}", flush=True)
    found = []
    for sample in _changes(sizes, arms, quick=quick):
        found.append(dataclasses.asdict(sample))
        print(f"{time.monotonic() - begin:6.0f} s  {sample}", flush=True)
        yield {
            "machine": facts,
            "changes": found,
            "copies": {"megabytes": largest, "saves": saves, "restores": restores},
            "steps": {"megabytes": largest, **empty},
        }


def killed(sizes: list[int]) -> Iterator[dict[str, Any]]:
    """The committed figures with those of a killed worker measured anew, after each event."""
    kept: dict[str, Any] = json.loads(RESULTS.read_text())
    day = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    kept["machine"].append(
        f"a killed worker, in place and by a restart: {day} by `python -m benchmarks.training --kill`"
    )
    for megabytes, arm in ((megabytes, arm) for megabytes in sizes for arm in (jobs.IN_PLACE, jobs.RESTART)):
        for sample in changes.run(arm, megabytes, last=KILL):
            print(sample, flush=True)
            kept["changes"] = [each for each in kept["changes"] if not _is_same(each, sample)]
            kept["changes"].append(dataclasses.asdict(sample))
            yield kept


def _is_same(kept: dict[str, Any], sample: changes.Sample) -> bool:
    return (kept["event"], kept["megabytes"], kept["arm"]) == (sample.event, sample.megabytes, sample.arm)


def rounds(megabytes: int, *, quick: bool) -> int:
    """Jobs of each arm at a size: fewer where a step takes seconds."""
    most = 4 if megabytes < 500 else 3  # noqa: PLR2004  large states
    return most // 2 if quick else most


def _changes(sizes: list[int], arms: list[str], *, quick: bool) -> Iterator[changes.Sample]:
    for megabytes in sizes:
        for _ in range(rounds(megabytes, quick=quick)):
            for arm in arms:
                yield from changes.run(arm, megabytes)


def _facts(arms: list[str], *, quick: bool) -> list[str]:
    command = f"python -m benchmarks.training{' --quick' if quick else ''} --write"
    peer = [f"torchft {importlib.metadata.version('torchft')}"] if jobs.TORCHFT in arms else []
    return [
        *machine.facts(machine.import_seconds())[:-1],
        *peer,
        f"measured {datetime.now(timezone.utc):%Y-%m-%d} by `{command}`",
    ]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="MB", help="of state")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--kill", action="store_true", help="measure the outage of a killed worker alone")
    parser.add_argument("--write", action="store_true", help="replace the committed figures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
