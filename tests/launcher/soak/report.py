"""A soak's outcome as data: the laws and whether they held, and what each kind of fault cost. Pure."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.launcher.soak import plan, verdict

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The results of one run."""

    seed: int
    planned: int
    workers: int
    """Number of workers on each node."""
    torch: str
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


PAGE = """# The soak

Random faults against real launchers with real workers (gloo, warm start), each node and the store in a network of its
own. The next fault comes once training has recovered, or in the middle of the recovery. The training is exact: every
step's weight is known beforehand. `make soak` runs eight faults and 200 with one worker a node, and 50 each with two
and with eight (root, iproute2 and iptables needed); this page is what the following command wrote.

    python -m tests.launcher.soak --seed {seed} --faults {faults}{workers} --summary benchmarks/launcher/{name}

{table}
An outage here is the longest time without a step from a fault on to the next fault, so it holds a fault's own length:
a node that is frozen or cut off for a second stops everyone for that second. It was taken {load}.
"""


def page(outcome: Outcome, load: float) -> str:
    """The summary with what it is, for readers of the documentation."""
    busy = f"on a machine with {load:.0f} processes waiting for {os.cpu_count()} processors"
    workers = "" if outcome.workers == 1 else f" --workers {outcome.workers}"
    name = "SOAK.md" if outcome.workers == 1 else f"SOAK_{outcome.workers}_WORKERS.md"
    return PAGE.format(
        seed=outcome.seed, faults=outcome.planned, workers=workers, name=name, table=render(outcome), load=busy
    )


def render(outcome: Outcome) -> str:
    """The summary as Markdown."""
    generations = {(line["generation"], line["meeting"]) for line in outcome.journal if line["event"] == "start"}
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(Counter(code for _, code in outcome.exits).items()))
    nodes = f"{plan.LEAST_NODES} to {plan.MOST_NODES} nodes"
    lines = [
        f"Seed {outcome.seed}, torch {outcome.torch}, {nodes} of {_count(outcome.workers)}.",
        f"{len(outcome.injections)} of {outcome.planned} faults, {outcome.seconds:.0f} s.",
        f"{len(generations)} generations, {outcome.final[0]} steps.",
        f"Restarts charged: {verdict.charged(outcome.journal)}.",
        f"Exit codes of launchers: {codes}.",
        "",
        "| law | held |",
        "|---|---|",
        *(f"| {law} | {'yes' if not found else 'NO'} |" for law, found in violations(outcome).items()),
        "",
        "| fault | times | of these during a recovery | median outage | longest |",
        "|---|---|---|---|---|",
        *_rows(outcome),
    ]
    return "\n".join(lines) + "\n"


def _count(workers: int) -> str:
    return "one worker" if workers == 1 else f"{workers} workers"


def _rows(outcome: Outcome) -> list[str]:
    gaps = verdict.outages(outcome.journal, outcome.injections)
    rows = []
    for kind in plan.KINDS:
        of_kind = [
            (injection, gap) for injection, gap in zip(outcome.injections, gaps, strict=True) if injection.kind == kind
        ]
        if of_kind:
            paired = sum(injection.paired for injection, _ in of_kind)
            costs = [gap for _, gap in of_kind]
            name = kind.replace("_", " ")
            rows.append(
                f"| {name} | {len(of_kind)} | {paired} | {statistics.median(costs):.1f} s | {max(costs):.1f} s |"
            )
    return rows
