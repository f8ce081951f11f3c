"""``python -m tests.launcher.soak_in_place --seed N --faults 200``: one soak in place; exit code 1 with any violation.

The folder keeps journal and logs; ``--out`` writes the figures, and their page beside them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from benchmarks.common import faults, results
from tests.launcher.soak_in_place import exact, plan, report, soak, verdict


def main(arguments: Sequence[str]) -> int:
    """Run a soak, judge it, and print the verdict."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="soak-in-place-"))
    machine = results.machine(results.command("tests.launcher.soak_in_place", arguments), "torch")
    outcome = run(
        folder, given.seed, given.faults, given.nodes, given.workers, sharded=given.sharded, fixed=given.fixed
    )
    return faults.tell(report.results(outcome, machine), report.document, given.out)


def run(
    folder: Path,
    seed: int,
    count: int,
    nodes: int = plan.NODES,
    workers: int = plan.WORKERS,
    *,
    sharded: bool = False,
    fixed: bool = False,
) -> report.Outcome:
    """One soak in a folder; of a fixed size it is followed by the same job without faults."""
    start = partial(_start, nodes=nodes, workers=workers, sharded=sharded, fixed=fixed)
    began = time.monotonic()
    job, trouble = start(folder, plan.draw(seed, count))
    seconds = time.monotonic() - began
    furthest = max((line["step"] for line in job.journal.all if line["event"] == "step"), default=0)
    left_alone = None
    if fixed and not trouble:
        undisturbed, trouble = start(folder / "left-alone", (), steps=furthest)
        left_alone = undisturbed.journal.all
    return report.Outcome(
        seed=seed,
        nodes=nodes,
        workers=workers,
        planned=count,
        seconds=seconds,
        trouble=trouble,
        journal=job.journal.all,
        injections=job.injections,
        struck=frozenset(job.struck),
        unasked=job.unasked,
        ends=job.ends,
        expected=[verdict.Undisturbed(samples, mark) for samples, mark in exact.undisturbed(furthest)],
        launchers=job.launchers,
        sharded=sharded,
        left_alone=left_alone,
    )


def _start(
    folder: Path,
    faults: Sequence[plan.Fault],
    *,
    nodes: int,
    workers: int,
    sharded: bool,
    fixed: bool,
    steps: int = 0,
) -> tuple[soak.Soak, str]:
    """A job that has run, and why it did not reach its end."""
    folder.mkdir(parents=True, exist_ok=True)
    job = soak.Soak(folder, faults, nodes, workers, _say, sharded=sharded, fixed=fixed, steps=steps)
    try:
        job.run()
    except soak.SoakError as error:
        return job, str(error)
    return job, ""


def _say(line: str) -> None:
    print(line, flush=True)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.launcher.soak_in_place", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=plan.NODES)
    parser.add_argument("--workers", type=int, default=plan.WORKERS, help="of each node")
    parser.add_argument("--sharded", action="store_true", help="build a sharded model (FSDP2) for each group")
    parser.add_argument("--fixed", action="store_true", help="train with all nodes only, and compare to the bit")
    parser.add_argument("--folder", type=Path, help="where everything is kept; a new one by default")
    parser.add_argument("--out", type=Path, help="JSON of the figures, with the page beside it")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
