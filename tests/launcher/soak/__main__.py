"""``python -m tests.launcher.soak --seed N --faults 200``: one soak; exit code 1 with any violation.

The folder keeps journal, event lines and logs; ``--out`` writes the figures, and their page beside them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from benchmarks.common import faults, results
from tests.cluster import toy
from tests.launcher.soak import network, plan, report, soak

NOT_HERE = 77
"""Exit code where the machine has no network namespaces."""


def main(arguments: Sequence[str]) -> int:
    """Run a soak, judge it, and print the verdict."""
    given = _parser().parse_args(arguments)
    reason = network.missing()
    if reason:
        print(reason, file=sys.stderr)
        return NOT_HERE
    signal.signal(signal.SIGTERM, _end)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    machine = results.machine(results.command("tests.launcher.soak", arguments), "torch")
    outcome = run(folder, given.seed, given.faults, given.workers)
    return faults.tell(report.results(outcome, machine), report.document, given.out)


def run(folder: Path, seed: int, count: int, workers: int) -> report.Outcome:
    """One soak in a folder, with so many workers a node."""
    job = soak.Soak(folder, plan.draw(seed, count), workers, lambda line: print(line, flush=True))
    began, trouble = time.monotonic(), ""
    try:
        job.run()
    except soak.SoakError as error:
        trouble = str(error)
    final = max(toy.load(path) for path in (folder, *folder.glob("saved/*")))
    job.journal.read()
    job.events.read()
    furthest = max([final[0], *(line["step"] for line in job.journal.all if line["event"] == "step")])
    return report.Outcome(
        seed=seed,
        planned=count,
        workers=workers,
        seconds=time.monotonic() - began,
        trouble=trouble,
        journal=job.journal.all,
        events=job.events.all,
        injections=job.injections,
        exits=job.exits,
        left_behind=job.left_behind,
        unasked=job.unasked,
        final=final,
        trajectory=trajectory(furthest),
    )


def trajectory(steps: int) -> list[int]:
    """The weight after each step of a run without faults, the first one included."""
    weights = [1]
    for step in range(steps):
        weights.append(toy.update(weights[-1], toy.share(step, 0, 1)))
    return weights


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.launcher.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--workers", type=int, choices=plan.WORKERS, default=1, help="of each node")
    parser.add_argument("--folder", type=Path, help="where everything is kept; a new one by default")
    parser.add_argument("--out", type=Path, help="JSON of the figures, with the page beside it")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
