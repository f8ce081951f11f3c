"""From each round's figures to the page of many jobs in one stack. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Final

from benchmarks.common.results import Results, listed, table
from benchmarks.common.rounds import Figure, Rounds, cell, ratio
from benchmarks.launcher.report import verdict

BASE: Final = "hand-written"
OURS: Final = "component"
PEER: Final = "hand-written component"
"""What a repository of many jobs would otherwise have: ours is compared with it as well."""
FLOOR: Final = "hand-written component with a record"
"""As many resources as ours has, and no logic."""
FIGURES: Final = {
    "preview": Figure("preview, s", is_time=True),
    "up": Figure("`up`, s", is_time=True),
    "unchanged": Figure("preview without a change, s", is_time=True),
    "program_memory": Figure("program's memory, MB", 1e6, 0),
    "state": Figure("state, MB", 1e6, 2),
}
CPU: Final = {
    "program_cpu": Figure("CPU of the program, s"),
    "declaring_cpu": Figure("of it its own lines, s", decimals=2),
    "engine_cpu": Figure("CPU of the engine, s"),
}
TIMES: Final = ("preview", "up", "unchanged")
AIM: Final = 1.1
"""The most that each time of our component may be of the hand-written program's, and that a slope may be."""

HOW: Final = """\
Medians; in brackets p95 by nearest rank where a time was taken more than once (the largest, of so few), then the median
of the ratios to the hand-written program's run of the same round, and behind it, for our component, the same to the
hand-written component. Each round's figures are in [RESULTS.json](RESULTS.json)."""

ABOUT: Final = """\
Each job is a PyTorchJob, a Service, a Secret, a NetworkPolicy, the store's Deployment and an autoscaler; the launcher
comes from another stack, and nothing in the config causes a warning. `hand-written` declares these six resources and
nothing else. `hand-written component` wraps the same lines in a `ComponentResource` for each job, as a program does
that uses them again: seven resources. `with a record` has a `Stash` in it as well, which nothing reads: eight
resources, as the component of this package has. Its record is the launcher with which the job started, and a program
can read such a record only as a resource of its own: Pulumi gives a program nothing back that the state holds of a
component. The resources of our component have the program's line in the state, and not the whole stack of calls,
which is more than a third of the state of the other programs. ``in `pulumi.run` `` is our component in [a function
that the SDK awaits](../../docs/scale.md#many-jobs-in-one-stack).

The engine writes its state once at the end of an `up` (`PULUMI_SKIP_CHECKPOINTS`): with the default it writes all of it
after each step, which alone grows with the square of the number of objects, for each program alike. The provider is the
tests' stand-in, in the program's process. Memory is the largest that this process had. A `ConfigGroup` is measured with
up to 100 jobs: one of 500 would take half an hour of the run."""

WHERE: Final = """\
## Where the time goes

Seconds of CPU of the three operations together, with the same ratios. A machine that is busy changes them less than it
changes times. The program's own lines are what runs until all is declared: imports, the constructors with Pulumi's part
of them, and, in our component, the checks of the config and the objects made of it. The rest of the program's CPU is
Pulumi's SDK, which asks the engine for each resource and looks at each outstanding output when one is done, and the
stand-in provider."""


def document(results: Results) -> str:
    """The figures as Markdown."""
    found = by_jobs(results)
    parts = ["# Many jobs in one stack", listed(results), HOW, shown(found), *slopes(found), ABOUT, *where(found)]
    return "\n\n".join(parts) + "\n"


def by_jobs(results: Results) -> dict[int, Mapping[str, Rounds]]:
    """Each round's figures, by the number of jobs and the program."""
    return {int(jobs): by_arm for jobs, by_arm in results["rounds"].items()}


def shown(found: Mapping[int, Mapping[str, Rounds]]) -> str:
    """The table: a row for each program with each number of jobs."""
    heads = [*(figure.head for figure in FIGURES.values()), f"times at most {AIM} of hand-written"]
    rows = (
        [*row(jobs, arm, rounds, FIGURES), met(rounds) if arm == OURS else "-"]
        for jobs, rounds in found.items()
        for arm in rounds
    )
    return table([["jobs", "program", "runs", *heads], *rows])


def where(found: Mapping[int, Mapping[str, Rounds]]) -> list[str]:
    """The CPU's seconds, and what two resources cost that do nothing, with each number of jobs that has both."""
    told = {jobs: rounds for jobs, rounds in found.items() if FLOOR in rounds}
    if not told:
        return []
    heads = [figure.head for figure in CPU.values()]
    rows = (row(jobs, arm, rounds, CPU) for jobs, rounds in told.items() for arm in rounds)
    return [WHERE, table([["jobs", "program", "runs", *heads], *rows]), excess(*max(told.items()))]


def row(jobs: int, arm: str, rounds: Mapping[str, Rounds], figures: Mapping[str, Figure]) -> list[str]:
    """One program with one number of jobs."""
    bases = [rounds[BASE], *([rounds[PEER]] if arm == OURS else [])]
    cells = (cell(name, figure, rounds[arm], *bases) for name, figure in figures.items())
    return [str(jobs), arm, str(len(rounds[arm])), *cells]


def met(rounds: Mapping[str, Rounds]) -> str:
    """Whether each time of our component is within the aim, as it is shown."""
    return verdict([round(ratio(name, rounds[OURS], rounds[BASE]), 2) <= AIM for name in TIMES])


def excess(jobs: int, rounds: Mapping[str, Rounds]) -> str:
    """What two resources cost that do nothing, beside what ours cost."""

    def ratios(arm: str) -> str:
        return " / ".join(f"{ratio(name, rounds[arm], rounds[BASE]):.2f}" for name in TIMES)

    return (
        f"With {jobs} jobs, {' / '.join(TIMES)} take {ratios(FLOOR)} times as long as the hand-written program's where "
        f"a component and a record do nothing, and {ratios(OURS)} times as long with ours and all that it does."
    )


def slopes(found: Mapping[int, Mapping[str, Rounds]]) -> list[str]:
    """How each program's times grow between the two largest numbers of jobs; 1 is linear."""
    *_, few, many = [0, *sorted(found)]
    if not few:
        return []
    grown = [
        f"{arm} {' / '.join(f'{slope(name, found[few][arm], found[many][arm], many / few):.2f}' for name in TIMES)}"
        for arm in found[few]
        if arm in found[many]
    ]
    steep = [
        arm
        for arm in found[few]
        if arm in found[many]
        and any(slope(name, found[few][arm], found[many][arm], many / few) > AIM for name in TIMES)
    ]
    aim = (
        f"The aim of {AIM} at most is missed by: {', '.join(steep)}."
        if steep
        else f"All meet the aim of {AIM} at most."
    )
    return [f"Slope from {few} to {many} jobs (1 is linear), {' / '.join(TIMES)}: {', '.join(grown)}. {aim}"]


def slope(name: str, few: Rounds, many: Rounds, times_as_many: float) -> float:
    """In logarithms, between two numbers of jobs."""
    before, after = (statistics.median(each[name] for each in rounds) for rounds in (few, many))
    return math.log(after / before) / math.log(times_as_many)
