"""The simulation beside jobs that really run: goodput and time of the same random faults, measured and simulated.

    python -m benchmarks.simulate [--seeds N ...] [--rounds N] [--write]     --write replaces the results

``elastic-infra run --chaos`` draws the faults. The simulation gets these at the moments when they came, and as many
steps of the same length. What comes before the first step and after the last one is left out, since importing torch is
most of it. Run it on a machine that does nothing else: the simulation's latencies are those of such a machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.common import results as common
from benchmarks.launcher import machine
from benchmarks.launcher.measure import Summary
from elastic_infra.simulate import arms
from elastic_infra.simulate.measured import Latencies
from elastic_infra.simulate.run import Run as Life
from elastic_infra.simulate.run import simulate
from elastic_infra.simulate.scenario import HOUR, Change, Costs, Kind, Rates, Saving, Scenario
from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.history import history
from tests.local.running import FOREVER, Run, write_job

RESULTS: Final = Path(__file__).with_name("RESULTS.json")
SCRIPTS: Final[Mapping[arms.Name, str]] = {"restarts": "sums.py", "in place": "stays.py"}
SEEDS: Final = (34, 38)
"""Plans without a hang, for which the simulation has no rate, and whose last fault is a node that comes back."""
ROUNDS: Final = 3
"""Runs of each plan in each way: together they take about nine minutes."""
NODES: Final = 2
FAULTS: Final = 5
BACK_SECONDS: Final = 2.0
"""``elastic-infra run`` brings a node back after so long."""
CHANGES: Final[Mapping[str, Kind]] = {"kill node": "loss", "preempt node": "preemption", "kill worker": "crash"}
DIGITS: Final = {"goodput": 3, "seconds": 1, "lost": 2}
"""The measured figures of the page, and the decimals of each."""
CLOSE: Final = 0.15
"""Simulated goodput and time may differ from the measured ones by this part."""
CLOSE_DEFAULT: Final[Mapping[arms.Name, float]] = {"restarts": 1.4, "in place": 0.25}
"""The loss that is simulated with the default latencies may differ from the measured one by this part."""
CLOSE_LOSS: Final = 0.4
"""The loss that is simulated with the script's own latency may differ from the measured one by this part."""

ABOUT: Final = """\
Two nodes of one worker train on this machine, and each plan of random faults has five: nodes killed or told to leave,
which come back after two seconds, and killed workers. `restarts` saves each step and starts its workers again with each
change; `in place` keeps its processes. Both scripts do the same sums. The time counts from the end of the first step to
that of the last one. Goodput is the usual time of the steps in between as a share of it, and the loss is the rest.

Medians of the runs, with p95 by nearest rank (of so few: the largest); each simulated figure is a part of the measured
one. The loss is simulated twice. First with the latencies that `elastic-infra simulate` has for a state that is next to
nothing, as it is here. Those of restarts are of [the launcher's benchmark](../launcher/RESULTS.md), where three nodes
share the two processors, build a model under DistributedDataParallel and read a checkpoint, which these scripts do not:
they are too large here, in disfavour of this launcher. Those in place are of [the benchmark of
training](../training/RESULTS.md). Then, `by its own`, with one latency for each change, the one that the same script
had in the other plan: that shows whether the model adds up.
"""


@dataclasses.dataclass(frozen=True)
class Lived:
    """A job that ran, from the end of its first step to that of its last one."""

    arm: arms.Name
    seed: int
    seconds: float
    work: float
    """The usual seconds of the steps in between, each counted once."""
    step: float
    """The usual seconds of a step."""
    changes: tuple[tuple[Kind, float], ...]
    """What happened, and when."""

    @property
    def goodput(self) -> float:
        """The share of the time that went into training that was kept."""
        return self.work / self.seconds

    @property
    def lost(self) -> float:
        """The seconds that went into no training that was kept."""
        return self.seconds - self.work

    def simulated(self, latencies: Latencies | None = None) -> Life:
        """The life of the same job in the simulation.

        Args:
            latencies: of its changes; None: those that the simulation has by default.
        """
        saves = Saving(self.step, 0.0)
        scenario = Scenario(
            (1, NODES),
            self.work / HOUR,
            efficiency=0.5,  # each step does the same work, whatever the number of nodes
            rates=Rates(failures=0.0),
            costs=Costs(0.0, 0.0, self.step, saves, saves if self.arm == "in place" else None, state=0.0),
            trace=tuple(Change(at, kind) for kind, at in sorted(self.changes, key=lambda change: change[1])),
            returns=False,
        )
        arm = arms.arm(self.arm, scenario)
        arm = dataclasses.replace(arm, latencies=latencies or arm.latencies, first_seconds=0.0)
        return simulate(scenario, arm, "0")

    @property
    def latency(self) -> float:
        """Seconds that a change cost besides the steps that are done again, on average over all kinds."""
        return (self.lost - _lost(self.simulated(_alike(0.0)))) / len(self.changes)


class Ratios(NamedTuple):
    """What was simulated as parts of what was measured."""

    goodput: float
    seconds: float
    lost: float
    """With the latencies that the simulation has by default."""
    own_lost: float
    """With the latency that the same script had in the other plans: this is what shows whether the model adds up."""


def ratios(lived: Lived, others: Sequence[Lived]) -> Ratios:
    """One job beside its simulation.

    Args:
        lived: the job.
        others: all jobs that ran.
    """
    life, own = (lived.simulated(latencies) for latencies in (None, own_latencies(lived, others)))
    losses = (_lost(each) / lived.lost for each in (life, own))
    return Ratios(life.goodput / lived.goodput, life.hours * HOUR / lived.seconds, *losses)


def own_latencies(lived: Lived, others: Sequence[Lived]) -> Latencies:
    """What a change cost the same script in the runs of other plans: one number for all kinds."""
    found = [each.latency for each in others if each.arm == lived.arm and each.seed != lived.seed]
    return _alike(statistics.median(found))


def _lost(life: Life) -> float:
    """The seconds of a simulated life that went into no training that was kept."""
    return life.hours * HOUR * (1 - life.goodput)


def _alike(seconds: float) -> Latencies:
    return Latencies(0.0, seconds, seconds, seconds, seconds)


def measured(folder: Path, arm: arms.Name, seed: int) -> Lived:
    """Run a job with one plan of faults.

    Args:
        folder: of the job's files.
        arm: how workers take a change.
        seed: of the plan.
    """
    run = _run(folder, SCRIPTS[arm], seed)
    story = history(run.events())
    trained = [generation.steps for generation in story.generations if generation.steps]
    if not trained:
        message = f"The job reported no steps:\n{run.output}"
        raise RuntimeError(message)
    begin, seconds = trained[0].first_at, trained[-1].last_at - trained[0].first_at
    known = figures(story)
    made = (known.steps or 0) + known.steps_lost - len(trained)  # a generation's first step is in no time of training
    step = (known.training_seconds or 0.0) / made
    return Lived(arm, seed, seconds, ((known.steps or 0) - 1) * step, step, tuple(_changes(run, begin)))


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


def _changes(run: Run, begin: float) -> Iterator[tuple[Kind, float]]:
    """The faults of the run as changes of the simulation, in seconds since its first step."""
    for record in run.events("fault"):
        kind = CHANGES.get(" ".join(record.text("fault").split()[:2]))
        if kind is not None:  # a store that is lost costs no step
            yield kind, record.at - begin
        if kind in {"loss", "preemption"}:
            yield "return", record.at - begin + BACK_SECONDS


def document(results: common.Results) -> str:
    """The page as Markdown."""
    head = ["way", "plan", "runs", "goodput", "simulated", "seconds", "simulated", "lost, s", "simulated", "by its own"]
    cases: dict[tuple[str, int], list[Lived]] = defaultdict(list)
    everyone = lives(results)
    for lived in everyone:
        cases[lived.arm, lived.seed].append(lived)
    rows = (_row(runs, everyone) for runs in cases.values())
    parts = ("# The simulation beside jobs that ran", common.listed(results), common.table([head, *rows]), ABOUT)
    return "\n\n".join(parts)


def lives(results: common.Results) -> list[Lived]:
    """The jobs of a file."""
    return [
        Lived(**{**lived, "changes": tuple((kind, at) for kind, at in lived["changes"])}) for lived in results["lives"]
    ]


def _row(runs: Sequence[Lived], everyone: Sequence[Lived]) -> list[str]:
    """The runs of one plan in one way."""
    found = Ratios(*map(statistics.median, zip(*(ratios(run, everyone) for run in runs), strict=True)))
    shown = [
        text for name, digits in DIGITS.items() for text in (_cell(runs, name, digits), f"{getattr(found, name):.2f}")
    ]
    return [runs[0].arm, f"`--chaos {runs[0].seed}`", str(len(runs)), *shown, f"{found.own_lost:.2f}"]


def _cell(runs: Sequence[Lived], name: str, digits: int) -> str:
    """The median of what the jobs had, with p95 where there were several."""
    found = Summary(tuple(getattr(run, name) for run in runs), {})
    p95 = f" (p95 {found.p95:.{digits}f})" if found.runs > 1 else ""
    return f"{found.median:.{digits}f}{p95}"


def main(arguments: Sequence[str]) -> int:
    """Measure all plans in both ways, and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, metavar="N", help="of the plans of faults")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="runs of each plan in each way")
    parser.add_argument("--write", action="store_true", help="replace the committed figures")
    options = parser.parse_args(arguments)
    facts = machine.facts(machine.import_seconds(), common.command("benchmarks.simulate", arguments))
    found = []
    for _, seed, arm in itertools.product(range(options.rounds), options.seeds, SCRIPTS):
        with tempfile.TemporaryDirectory() as folder:
            found.append(dataclasses.asdict(measured(Path(folder), arm, seed)))
        print(found[-1], flush=True)
    results = {"machine": facts, "lives": found}
    if options.write:
        common.save(RESULTS, results, document)
    print(f"\n{document(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
