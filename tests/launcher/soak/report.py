"""A soak's outcome as data, the laws, and the page with what each kind of fault cost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.common import faults
from benchmarks.common.results import Results, listed
from tests.launcher.soak import plan, verdict

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The results of one run."""

    seed: int
    planned: int
    workers: int
    """Number of workers on each node."""
    seconds: float
    trouble: str
    """Why the run did not reach its end; empty where it did."""
    journal: Sequence[Line]
    events: Sequence[Line]
    injections: Sequence[verdict.Injection]
    exits: Sequence[tuple[str, int]]
    left_behind: Sequence[str]
    unasked: Sequence[str]
    final: tuple[int, int]
    """Step and weight of the furthest checkpoint."""
    trajectory: Sequence[int]
    """The weight of a run without faults after each step."""


def violations(outcome: Outcome) -> dict[str, list[str]]:
    """Each law with what broke it."""
    kills = sum(injection.kind == "kill_worker" for injection in outcome.injections)
    spent = verdict.charged(outcome.journal)
    step, weight = outcome.final
    told = any(line["event"] == "finished" for line in outcome.journal)
    return {
        "the job succeeded": [outcome.trouble] if outcome.trouble else ([] if told else ["no worker finished"]),
        "no launcher gave up unasked": list(outcome.unasked),
        "no two generations ran at once": verdict.guarantee(outcome.journal),
        "no node started a generation before it had stopped the last": verdict.told_order(outcome.events),
        "every step is exact": verdict.exact(outcome.journal, outcome.trajectory),
        "the final weight is that of a run without faults": []
        if outcome.trajectory[step] == weight
        else [f"step {step}: {weight}, not {outcome.trajectory[step]}"],
        "only killed workers are charged": [] if spent <= kills else [f"{spent} charged, {kills} killed"],
        "no orphan, no zombie": list(outcome.left_behind),
    }


PAGE: Final = """\
# {title}

{facts}

Random faults against real launchers with real workers (gloo, warm start), each node and the store in a network of its
own. The next fault comes once training has recovered, or in the middle of the recovery. The training is exact: every
step's weight is known beforehand. The same seed gives the same faults. `make soak` runs eight faults and 200 with one
worker a node, and 50 each with two and with eight (root, iproute2 and iptables needed).

Seed {seed}, {least} to {most} nodes of {workers}. {struck} of {planned} faults in {seconds:.0f} s, {generations}
generations, {steps} steps. Restarts charged: {charged}. Exit codes of launchers: {exits}.

{laws}

{costs}

An outage here is the longest time without a step from a fault on to the next fault, so it holds a fault's own length:
a node that is frozen or cut off for a second stops everyone for that second. p95 is by nearest rank.
"""


def results(outcome: Outcome, machine: Sequence[str]) -> dict[str, Any]:
    """What is kept of a run on a machine with these facts."""
    generations = {(line["generation"], line["meeting"]) for line in outcome.journal if line["event"] == "start"}
    gaps = verdict.outages(outcome.journal, outcome.injections)
    return {
        "machine": [*machine],
        "seed": outcome.seed,
        "least": plan.LEAST_NODES,
        "most": plan.MOST_NODES,
        "workers": outcome.workers,
        "planned": outcome.planned,
        "seconds": outcome.seconds,
        "generations": len(generations),
        "steps": outcome.final[0],
        "charged": verdict.charged(outcome.journal),
        "exits": {str(code): count for code, count in sorted(Counter(code for _, code in outcome.exits).items())},
        "laws": violations(outcome),
        "faults": [
            {"kind": injection.kind, "paired": injection.paired, "seconds": round(gap, 3)}
            for injection, gap in zip(outcome.injections, gaps, strict=True)
        ],
    }


def document(found: Results) -> str:
    """The page as Markdown."""
    workers = found["workers"]
    struck = [{**fault, "kind": _name(fault["kind"])} for fault in found["faults"]]
    told = {
        "title": "The soak" if workers == 1 else f"The soak with {workers} workers a node",
        "facts": listed(found),
        "workers": "one worker" if workers == 1 else f"{workers} workers",
        "struck": len(struck),
        "exits": ", ".join(f"{code}: {count}" for code, count in found["exits"].items()),
        "laws": faults.laws(found["laws"]),
        "costs": faults.costs(struck, [_name(kind) for kind in plan.KINDS]),
    }
    return PAGE.format_map({**found, **told})


def _name(kind: str) -> str:
    return kind.replace("_", " ")
