"""Outages of a job on GPUs beside torchrun, a restart with its CUDA context, and the stall of a snapshot.

    python -m benchmarks.gpu [--runs N] [--megabytes MB] [--write]

Without a GPU it says so and measures nothing. ``TEST_DEVICE=cpu`` tries the program out with gloo, and writes nothing.
``--write`` makes RESULTS.json and RESULTS.md beside this file. Rows with two workers need two GPUs, or a GPU on which
NCCL lets two ranks meet; a row that is left out has its reason on the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.common import results
from benchmarks.gpu import copies, report
from benchmarks.launcher import arms, machine, scenario
from benchmarks.launcher.scenario import Chain, Event
from tests.gpu import device as devices

HERE: Final = Path(__file__).parent
SCRIPT: Final = HERE / "train.py"
RESULTS: Final = HERE / "RESULTS.json"
RUNS: Final = 4
MEGABYTES: Final = 1000


def main(arguments: list[str]) -> int:
    """Measure, print the page, and write it where that is asked for."""
    options = _parse(arguments)
    kind = devices.chosen()
    if reason := devices.missing(kind):
        print(f"Nothing is measured: {reason}.")
        return 0
    facts = machine.facts(machine.import_seconds(), results.command("benchmarks.gpu", arguments))
    found = measured(kind, options.runs, options.megabytes, facts)
    print(f"\n{report.document(found)}")
    if kind == "cpu":
        print("Tried out on the CPU: these figures say nothing of a GPU, and are not written.")
    elif options.write:
        results.save(RESULTS, found, report.document)
    return 0


def measured(kind: devices.Kind, runs: int, megabytes: int, facts: list[str]) -> dict[str, Any]:
    """All figures, in the form that is kept."""
    reason = devices.missing_for_two(kind)
    wanted = _chains(runs)
    chains = wanted[:1] if reason else wanted
    samples, starts = [], {}
    for arm in report.ARMS:
        found, starts[arm.name] = _of_arm(arm, chains, runs)
        samples += found
    return {
        "machine": facts,
        "samples": samples,
        "starts": starts,
        "skipped": {event.row: reason for chain in wanted[len(chains) :] for event in chain.events},
        "copies": copies.measured(megabytes),
    }


def _chains(runs: int) -> list[Chain]:
    """What happens to jobs. The first one needs one GPU, the others two ranks."""
    growth = Event("a second node joins", 1, 2, scenario.start(1))
    return [_killed(1, runs), _killed(2, runs), Chain("grows", arms.Launch("1:2"), (growth,), script=SCRIPT)]


def _killed(workers: int, runs: int) -> Chain:
    """One job lives through all of them."""
    launch = arms.Launch("1:1", workers=workers, max_restarts=100)
    event = Event(f"a worker of {workers} is killed", workers, workers, scenario.crash)
    return Chain(f"killed-{workers}", launch, (event,), repeat=runs, script=SCRIPT)


def _of_arm(arm: arms.Arm, chains: list[Chain], runs: int) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """The samples of an arm, and the starts of its workers."""
    with tempfile.TemporaryDirectory() as folder:
        phases = Path(folder) / "phases"
        os.environ["PHASES"] = str(phases)
        samples = []
        for chain in chains:
            for _ in range(chain.rounds(runs)):
                for sample in scenario.run(chain, arm, print):
                    print(f"  {sample}", flush=True)
                    samples.append(dataclasses.asdict(sample))
        lines = phases.read_text().splitlines() if phases.exists() else []
    return samples, [json.loads(line) for line in lines]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"of each row and arm: {RUNS}")
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, metavar="MB", help=f"of state: {MEGABYTES}")
    parser.add_argument("--write", action="store_true", help="write RESULTS.json and RESULTS.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
