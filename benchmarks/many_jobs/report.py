"""From each round's figures to the page of many jobs in one stack. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.common.results import Results, listed, table
from benchmarks.launcher.measure import Summary
from benchmarks.launcher.report import verdict

BASE: Final = "hand-written"
OURS: Final = "component"
PEER: Final = "hand-written component"
"""What a repository of many jobs would otherwise have: ours is compared with it as well."""
FIGURES: Final = {
    "preview": ("preview, s", 1, 1),
    "up": ("`up`, s", 1, 1),
    "unchanged": ("preview without a change, s", 1, 1),
    "program_memory": ("program's memory, MB", 1e6, 0),
    "state": ("state, MB", 1e6, 2),
}
"""Heading, unit and decimals of each figure."""
TIMES: Final = ("preview", "up", "unchanged")
AIM: Final = 1.1
"""The most that each time of our component may be of the hand-written program's, and that a slope may be."""
Rounds = Sequence[Mapping[str, float]]
"""The figures of each round of one program with one number of jobs."""

HOW: Final = """\
Medians; in brackets p95 by nearest rank where a time was taken more than once (the largest, of so few), then the median
of the ratios to the hand-written program's run of the same round, and behind it, for our component, the same to the
hand-written component. Each round's figures are in [RESULTS.json](RESULTS.json)."""

ABOUT: Final = """\
Each job is a PyTorchJob, a Service, a Secret, a NetworkPolicy, the store's Deployment and an autoscaler; the launcher
comes from another stack. `hand-written` declares these six resources and nothing else. `hand-written component` wraps
the same lines in a `ComponentResource` for each job, as a program does that uses them again: seven resources. The
component of this package adds two resources to a job: itself, and the record of the launcher with which
the job started. A program can read such a record only as a resource of its own: Pulumi gives a program nothing back
that the state holds of a component. The resources of the component have the program's line in the state, and not the
whole stack of calls, which is more than a third of the state of the other programs.

The engine writes its state once at the end of an `up` (`PULUMI_SKIP_CHECKPOINTS`): with the default it writes all of it
after each step, which alone grows with the square of the number of objects, for each program alike. The provider is the
tests' stand-in, in the program's process. Memory is the largest that this process had. A `ConfigGroup` is measured with
up to 100 jobs: one of 500 would take half an hour of the run.
"""


def document(results: Results) -> str:
    """The figures as Markdown."""
    found = {int(jobs): by_arm for jobs, by_arm in results["rounds"].items()}
    parts = ["# Many jobs in one stack", listed(results), HOW, shown(found), *slopes(found), ABOUT]
    return "\n\n".join(parts)


def shown(found: Mapping[int, Mapping[str, Rounds]]) -> str:
    """The table: a row for each program with each number of jobs."""
    heads = [*(head for head, _, _ in FIGURES.values()), f"times at most {AIM} of hand-written"]
    rows = (row(jobs, arm, rounds) for jobs, rounds in found.items() for arm in rounds)
    return table([["jobs", "program", "runs", *heads], *rows])


def row(jobs: int, arm: str, rounds: Mapping[str, Rounds]) -> list[str]:
    """One program with one number of jobs."""
    bases = [rounds[BASE], *([rounds[PEER]] if arm == OURS else [])]
    cells = (cell(name, rounds[arm], *bases) for name in FIGURES)
    return [str(jobs), arm, str(len(rounds[arm])), *cells, met(rounds) if arm == OURS else "-"]


def met(rounds: Mapping[str, Rounds]) -> str:
    """Whether each time of our component is within the aim, as it is shown."""
    return verdict([round(ratio(name, rounds[OURS], rounds[BASE]), 2) <= AIM for name in TIMES])


def ratio(name: str, rounds: Rounds, base: Rounds) -> float:
    """The median of the ratios of one figure in each round."""
    return statistics.median(ours[name] / theirs[name] for ours, theirs in zip(rounds, base, strict=True))


def cell(name: str, rounds: Rounds, *bases: Rounds) -> str:
    """One figure with its p95 and its ratio to each base."""
    _, unit, decimals = FIGURES[name]
    summary = Summary(tuple(each[name] / unit for each in rounds), {})
    ratios = (ratio(name, rounds, base) for base in bases)
    p95 = f"p95 {summary.p95:.{decimals}f}; " if name in TIMES and summary.runs > 1 else ""
    return f"{summary.median:.{decimals}f} ({p95}{', '.join(f'{each:.2f}' for each in ratios)})"


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
