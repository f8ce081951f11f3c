"""What membership changes, losses and crashes cost under this launcher, beside torchrun, plain and tuned.

    python -m benchmarks.launcher [--ours N] [--tuned N] [--plain N] [--only NAME ...] [--out FILE] [--add]

Arms take turns within a round. Writes RESULTS.json and RESULTS.md beside this file after every round; with ``--add``
the samples of the file stay, and those of this run come to them. ``heavy-imports`` needs transformers and lightning,
which the Python of ``.venv-frameworks`` has. Run it on a machine that does nothing else; in a container of its own it
needs the right to make a PID namespace.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.common import results
from benchmarks.launcher import arms, machine, report, requirements, resources, scenario
from benchmarks.launcher.measure import Sample

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
RESOURCES: Final = {"resources": 2, "resources-8": 8}
"""Workers of the node whose launcher is looked at."""
NAMES: Final = (
    *RESOURCES,
    *(each.name for each in requirements.REQUIREMENTS),
    *dict.fromkeys(chain.name for chain in scenario.CHAINS),
)
Part = Callable[[], Iterable[Sample]]


def main(arguments: list[str]) -> int:
    """Measure, all by default, and write the samples and their table."""
    options = _parse(arguments)
    seconds = machine.import_seconds()
    facts = machine.facts(seconds, results.command("benchmarks.launcher", arguments))
    print(*facts, sep="\n", flush=True)
    samples: list[Sample] = []
    if options.add:
        kept = results.load(options.out)
        samples = [Sample(**sample) for sample in kept["samples"]]
        facts, seconds = [*kept["machine"], *facts], kept["import_seconds"]
    text = ""
    begin = time.monotonic()
    for part in _parts(options):
        for sample in part():
            samples.append(sample)
            value = sample.outcome if sample.value is None else f"{sample.value:.3f}"
            print(f"{time.monotonic() - begin:6.0f} s  {sample.arm:5}  {sample.row}: {value}", flush=True)
        text = results.save(options.out, report.results(samples, facts, seconds), report.document)
    print(f"\n{text}")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launcher")
    for arm, runs in (("ours", 10), ("tuned", 3), ("plain", 2)):
        parser.add_argument(
            f"--{arm}", type=int, default=runs, metavar="N", help=f"runs of each event, by default {runs}"
        )
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES, help="what to measure")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON of the samples, with the table beside it")
    parser.add_argument("--add", action="store_true", help="keep the samples that are there")
    return parser.parse_args(arguments)


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    """Everything that is to be run, in its order."""
    every = (*_resources(options), *_requirements(options), *_chains(options))
    return (part for name, part in every if name in options.only)


def _resources(options: argparse.Namespace) -> Iterator[tuple[str, Part]]:
    for name, workers in RESOURCES.items():
        for arm in (arms.OURS, arms.PLAIN):
            if _runs(options, arm):
                yield name, partial(resources.run, arm, workers)


def _requirements(options: argparse.Namespace) -> Iterator[tuple[str, Part]]:
    """Torchrun's tuning touches none of these."""
    for each in requirements.REQUIREMENTS:
        ours, control = (
            min(each.runs, 2 * _runs(options, arms.OURS)),
            min(each.control_runs, _runs(options, arms.PLAIN)),
        )
        for arm, runs in ((arms.OURS, ours), (arms.PLAIN, control)):
            if runs:
                yield each.name, partial(each.measure, arm, runs)


def _chains(options: argparse.Namespace) -> Iterator[tuple[str, Part]]:
    """Arms in turn, round after round."""
    chains = [chain for chain in scenario.CHAINS if importlib.util.find_spec(chain.needs)]
    pairs = [(chain, arm) for chain in chains for arm in chain.arms]
    for number in range(max(_runs(options, arm) for arm in arms.ARMS)):
        for chain, arm in pairs:
            if number < chain.rounds(_runs(options, arm)):
                yield chain.name, partial(scenario.run, chain, arm, _say)


def _runs(options: argparse.Namespace, arm: arms.Arm) -> int:
    return int(getattr(options, arm.name))


def _say(line: str) -> None:
    print(f"          {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
