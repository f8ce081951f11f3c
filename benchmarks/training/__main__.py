"""Changes of members in place, beside a restart of the workers and torchft; snapshots, restores and empty steps.

    python -m benchmarks.training [--sizes MB ...] [--quick] [--write]
           [--kill | --copies | --sharded | --neighbours | --stopped]

Arms take turns. ``--quick`` makes fewer rounds: twenty minutes on two processors. ``--kill`` measures the outage of a
killed worker alone, once, in place and by a restart, in four minutes; ``--copies`` those of snapshots and restores, in
two; ``--sharded`` the changes of a sharded model, and ``--neighbours`` what copies of its shards on another node cost,
in six each; ``--stopped`` a change in which one worker cannot move, in two. ``--write`` replaces RESULTS.json and
RESULTS.md; after these five the other figures stay. torchft takes
part where it is installed (``pip install torchft==0.2.0``). Run it on a machine that does nothing else, with 16 GB of
memory for the largest state.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.common import results as common
from benchmarks.launcher import machine
from benchmarks.training import changes, copies, jobs, neighbours, report, steps
from benchmarks.training.labels import KILL

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
SIZES: Final = (10, 300, 1000)
"""Megabytes of state."""
SHARDED_SIZE: Final = 100
"""Megabytes of a sharded model's state, in all its shards."""


def main(arguments: list[str]) -> int:
    """Measure, and print the page."""
    options = _parse(arguments)
    results: dict[str, Any] = {}
    for results in _rounds(options, common.command("benchmarks.training", arguments)):
        if options.write:
            common.save(RESULTS, results, report.document)
    print(f"\n{report.document(results)}")
    return 0


def _rounds(options: argparse.Namespace, command: str) -> Iterator[dict[str, Any]]:
    if options.kill:
        return killed(options.sizes, command)
    if options.copies:
        return copied(max(options.sizes), command, quick=options.quick)
    if options.sharded:
        return sharded(command, quick=options.quick)
    if options.neighbours:
        return neighboured(command, quick=options.quick)
    if options.stopped:
        return stopped(min(options.sizes), command, quick=options.quick)
    return measured(options.sizes, command, quick=options.quick)


def copied(megabytes: int, command: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """The committed figures with those of snapshots and restores measured anew."""
    kept = common.load(RESULTS)
    _date(kept, "snapshots and restores", command)
    kept["copies"] = _copies(megabytes, quick=quick)
    yield kept


def sharded(command: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """The committed figures with the changes of a sharded model measured anew, after each event."""
    kept = common.load(RESULTS)
    _date(kept, "a sharded model", command)
    return _sharded(kept, quick=quick)


def neighboured(command: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """The committed figures with those of copies on another node measured anew."""
    kept = common.load(RESULTS)
    _date(kept, "copies on another node", command)
    return _neighboured(kept, quick=quick)


def stopped(megabytes: int, command: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """The committed figures with those of a change in which one worker cannot move measured anew, after each event."""
    kept = common.load(RESULTS)
    _date(kept, "a stopped worker", command)
    return _stopped(kept, megabytes, quick=quick)


def measured(sizes: list[int], command: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """All figures as they are kept, after each event."""
    arms = [arm for arm in jobs.ARMS if arm != jobs.TORCHFT or importlib.util.find_spec("torchft")]
    facts, largest = _facts(arms, command), max(sizes)
    begin = time.monotonic()
    empty = {arm: steps.measured(largest, arm) for arm in (jobs.IN_PLACE, jobs.RESTART)}
    copied_largest = _copies(largest, quick=quick)
    print(f"{time.monotonic() - begin:6.0f} s  {copied_largest}", flush=True)
    found: list[dict[str, Any]] = []
    results: dict[str, Any] = {
        "machine": facts,
        "changes": found,
        "copies": copied_largest,
        "steps": {"megabytes": largest, **empty},
    }
    for sample in _changes(sizes, arms, quick=quick):
        found.append(dataclasses.asdict(sample))
        print(f"{time.monotonic() - begin:6.0f} s  {sample}", flush=True)
        yield results
    yield from _sharded(results, quick=quick)
    yield from _neighboured(results, quick=quick)
    yield from _stopped(results, min(sizes), quick=quick)


def killed(sizes: list[int], command: str) -> Iterator[dict[str, Any]]:
    """The committed figures with those of a killed worker measured anew, after each event."""
    kept = common.load(RESULTS)
    _date(kept, "a killed worker, in place and by a restart", command)
    for megabytes, arm in ((megabytes, arm) for megabytes in sizes for arm in (jobs.IN_PLACE, jobs.RESTART)):
        for sample in changes.run(arm, megabytes, last=KILL):
            print(sample, flush=True)
            kept["changes"] = [each for each in kept["changes"] if not _is_same(each, sample)]
            kept["changes"].append(dataclasses.asdict(sample))
            yield kept


def _sharded(results: dict[str, Any], *, quick: bool) -> Iterator[dict[str, Any]]:
    results["sharded"] = []
    for sample in _changes([SHARDED_SIZE], list(jobs.SHARDED), quick=quick):
        print(sample, flush=True)
        results["sharded"].append({**dataclasses.asdict(sample), "arm": jobs.SHARDED[sample.arm]})
        yield results


def _neighboured(results: dict[str, Any], *, quick: bool) -> Iterator[dict[str, Any]]:
    results["neighbours"] = {"megabytes": SHARDED_SIZE, "waited": neighbours.measured(SHARDED_SIZE, 2 if quick else 3)}
    yield results


def _stopped(results: dict[str, Any], megabytes: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    results["stopped"] = []
    for arm in (jobs.IN_PLACE, jobs.RESTART) * rounds(megabytes, quick=quick):
        sample = changes.run_stopped(arm, megabytes)
        print(sample, flush=True)
        results["stopped"].append(dataclasses.asdict(sample))
        yield results


def _copies(megabytes: int, *, quick: bool) -> dict[str, Any]:
    saves, restores = copies.measured(megabytes, 2 if quick else 5)
    return {"megabytes": megabytes, "saves": saves, "restores": restores}


def _date(kept: dict[str, Any], figures: str, command: str) -> None:
    """Say when and how these figures were measured; the last time counts."""
    before = [fact for fact in kept["machine"] if not fact.startswith(f"{figures}: ")]
    kept["machine"] = [*before, f"{figures}: {common.measured(command)}"]


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


def _facts(arms: list[str], command: str) -> list[str]:
    *facts, measured = machine.facts(machine.import_seconds(), command)
    peer = [f"torchft {importlib.metadata.version('torchft')}"] if jobs.TORCHFT in arms else []
    return [*facts, *peer, measured]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="MB", help="of state")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--kill", action="store_true", help="measure the outage of a killed worker alone")
    alone.add_argument("--sharded", action="store_true", help="measure the changes of a sharded model alone")
    alone.add_argument("--neighbours", action="store_true", help="measure copies on another node alone")
    alone.add_argument("--stopped", action="store_true", help="measure a change beside a stopped worker alone")
    alone.add_argument("--copies", action="store_true", help="measure snapshots and restores alone")
    parser.add_argument("--write", action="store_true", help="replace the committed figures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
