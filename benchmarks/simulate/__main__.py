"""The simulation beside jobs that really run: goodput and time of the same random faults, measured and simulated.

    python -m benchmarks.simulate [--seeds N ...] [--write]     --write replaces RESULTS.json and RESULTS.md

``elastic-infra run --chaos`` draws the faults. The simulation gets these at the moments when they came, and as many
steps of the same length. The time before the first step is left out, since importing torch is most of it. Run it on a
machine that does nothing else: the simulation's latencies are those of such a machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.common import results as common
from benchmarks.launcher import machine
from elastic_infra.simulate import arms
from elastic_infra.simulate.run import Run as Life
from elastic_infra.simulate.run import simulate
from elastic_infra.simulate.scenario import HOUR, Change, Costs, Kind, Rates, Saving, Scenario
from elastic_infra.timeline.figures import Figures, figures
from elastic_infra.timeline.history import history
from tests.local.running import FOREVER, Run, write_job

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
SCRIPTS: Final[Mapping[arms.Name, str]] = {"restarts": "sums.py", "in place": "stays.py"}
SEEDS: Final = (34, 38)
"""Plans without a hang, for which the simulation has no rate, and whose last fault is a node that comes back."""
NODES: Final = 2
FAULTS: Final = 5
BACK_SECONDS: Final = 2.0
"""``elastic-infra run`` brings a node back after so long."""
CHANGES: Final[Mapping[str, Kind]] = {"kill node": "loss", "preempt node": "preemption", "kill worker": "crash"}
CLOSE: Final = 0.15
"""A simulated figure may differ from the measured one by this part."""

ABOUT: Final = """\
Two nodes of one worker train on this machine, and each plan of random faults has five: nodes killed or told to leave,
which come back after two seconds, and killed workers. `restarts` saves each step and starts its workers again with each
change; `in place` keeps its processes. Both scripts do the same sums. The time counts from the first step.
"""


@dataclasses.dataclass(frozen=True)
class Pair:
    """One job and its simulation."""

    arm: arms.Name
    seed: int
    goodput: float
    seconds: float
    """From the first step to the end."""
    simulated_goodput: float
    simulated_seconds: float

    @property
    def ratios(self) -> tuple[float, float]:
        """Simulated goodput and time as parts of the measured ones."""
        return self.simulated_goodput / self.goodput, self.simulated_seconds / self.seconds


def compared(folder: Path, arm: arms.Name, seed: int) -> Pair:
    """Run a job with one plan of faults, and simulate its life.

    Args:
        folder: of the job's files.
        arm: how workers take a change.
        seed: of the plan.
    """
    run = _run(folder, SCRIPTS[arm], seed)
    known = figures(history(run.events()))
    if known.goodput is None or known.first_step_seconds is None:
        message = f"The job reported no steps:\n{run.output}"
        raise RuntimeError(message)
    seconds = known.wall_seconds - known.first_step_seconds
    life = _predicted(run, known, arm)
    return Pair(arm, seed, known.goodput * known.wall_seconds / seconds, seconds, life.goodput, life.hours * HOUR)


def _run(folder: Path, script: str, seed: int) -> Run:
    job = write_job(folder, script=script, args=[str(FOREVER)], runtime=None)
    run = Run(job, "--nodes", str(NODES), "--chaos", str(seed), seconds=400)
    try:
        run.wait_for(lambda: len(run.faults()) == FAULTS, "all faults")
        last = len(run.worlds())
        run.wait_for(lambda: run.is_training(NODES, after=last), "training after the last fault")
        if run.finish():
            message = f"The job failed:\n{run.output}"
            raise RuntimeError(message)
    finally:
        run.end()
    return run


def _predicted(run: Run, known: Figures, arm: arms.Name) -> Life:
    """The life of the same job in the simulation from the first step on, with as many steps of the same length."""
    step = (known.training_seconds or 0.0) / ((known.steps or 0) + known.steps_lost)
    scenario = Scenario(
        (1, NODES),
        (known.steps or 0) * step / HOUR,
        efficiency=0.5,  # each step does the same work, whatever the number of nodes
        rates=Rates(failures=0.0),
        costs=Costs(0.0, 0.0, step, Saving(step, 0.0), Saving(step, 0.0) if arm == "in place" else None),
        trace=tuple(sorted(_changes(run, known), key=lambda change: change.at)),
        returns=False,
    )
    return simulate(scenario, dataclasses.replace(arms.arm(arm, scenario), first_seconds=0.0), "0")


def _changes(run: Run, known: Figures) -> Iterator[Change]:
    """The faults of the run as changes of the simulation."""
    first = history(run.events()).begin + (known.first_step_seconds or 0.0)
    for record in run.events("fault"):
        kind = CHANGES.get(" ".join(record.text("fault").split()[:2]))
        if kind is not None:  # a store that is lost costs no step
            yield Change(record.at - first, kind)
        if kind in {"loss", "preemption"}:
            yield Change(record.at - first + BACK_SECONDS, "return")


def document(results: common.Results) -> str:
    """The page as Markdown."""
    head = ["way", "plan", "goodput", "simulated", "", "seconds", "simulated", ""]
    rows = (_row(Pair(**pair)) for pair in results["pairs"])
    parts = ("# The simulation beside jobs that ran", common.listed(results), common.table([head, *rows]), ABOUT)
    return "\n\n".join(parts)


def _row(pair: Pair) -> list[str]:
    goodput, seconds = (f"{ratio:.2f}" for ratio in pair.ratios)
    measured = (f"{pair.goodput:.3f}", f"{pair.simulated_goodput:.3f}", goodput)
    return [
        pair.arm, f"`--chaos {pair.seed}`", *measured, f"{pair.seconds:.1f}", f"{pair.simulated_seconds:.1f}", seconds
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Measure all plans in both ways, and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, metavar="N", help="of the plans of faults")
    parser.add_argument("--write", action="store_true", help="replace the committed figures")
    options = parser.parse_args(arguments)
    facts = machine.facts(machine.import_seconds(), "python -m benchmarks.simulate --write")
    pairs = []
    for seed in options.seeds:
        for arm in SCRIPTS:
            with tempfile.TemporaryDirectory() as folder:
                pairs.append(dataclasses.asdict(compared(Path(folder), arm, seed)))
            print(pairs[-1], flush=True)
    results = {"machine": facts, "pairs": pairs}
    if options.write:
        common.save(RESULTS, results, document)
    print(f"\n{document(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
