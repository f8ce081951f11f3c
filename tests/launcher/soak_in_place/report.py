"""The outcome of a soak in place as data: the laws and whether they held, and the cost of each kind of fault. Pure."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.launcher.soak.verdict import Injection, outages
from tests.launcher.soak_in_place import plan, verdict

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The results of one run."""

    seed: int
    nodes: int
    workers: int
    """Workers a node."""
    planned: int
    torch: str
    seconds: float
    trouble: str
    """Why the run did not reach its end; empty where it did."""
    journal: Sequence[Line]
    injections: Sequence[Injection]
    struck: frozenset[int]
    unasked: Sequence[str]
    ends: Sequence[int]
    expected: Sequence[verdict.Undisturbed]
    """The steps of one worker without faults."""
    launchers: Sequence[Line] = ()
    """What the launchers' processes held."""
    sharded: bool = False
    """Whether the model was built anew and sharded in each group."""
    left_alone: Sequence[Line] | None = None
    """The journal of a job of the same size without faults; None where the size changes with the faults."""


def violations(outcome: Outcome) -> dict[str, list[str]]:
    """Each law with what broke it."""
    failed = [f"exit code {code}" for code in outcome.ends if code != 0]
    laws = {
        "the job succeeded": [outcome.trouble] if outcome.trouble else failed,
        "no launcher ended unasked": list(outcome.unasked),
        "every sample was trained on exactly once": verdict.exactly_once(outcome.journal, outcome.expected),
        "all ranks have equal weights after every step, to the bit": verdict.equal_ranks(outcome.journal),
        "the weights are those of a run without faults, after every step": verdict.undisturbed(
            outcome.journal, outcome.expected
        ),
        "no process holds more descriptors, threads or memory": [
            line for life in verdict.lives([*outcome.journal, *outcome.launchers]) for line in life.growth
        ],
    }
    if outcome.left_alone is None:
        return laws
    return {
        **laws,
        "all workers train, or none": verdict.of_size(outcome.journal, outcome.nodes * outcome.workers),
        "the weights are those of the same job without faults, after every step, to the bit": verdict.identical(
            outcome.journal, outcome.left_alone
        ),
    }


PAGE = """# The soak in place

Random faults against a job of real launchers whose workers are moved and not restarted wherever that can be: SIGKILL to
workers and to whole nodes at each point of a step, and in the middle of the moves that follow. A successor of a killed
node comes a moment later, while the next faults strike. The training is exact: a sample that is lost or counted twice
changes all weights from then on. `make soak` runs a dozen faults; this page is what the following command wrote.

    python -m tests.launcher.soak_in_place --seed {seed} --faults {faults}{shape} --summary benchmarks/training/{name}

{table}
The outage of a fault is the longest time without a step from it on to the next fault, on a machine with {load:.0f}
processes waiting for {processors} processors. One worker, that which has lived longest, is spared by 39 of 40 faults,
and the launcher of its node with it, so that they show what a process gathers over many generations: the most that it
held in the first third of its groups of one size, and the least in the last third. The launchers' processes are
supervisor, agent and fork server, read before each fault that does not strike a change.
"""


def page(outcome: Outcome, load: float) -> str:
    """The summary with what it is, for readers of the documentation."""
    is_usual = (outcome.nodes, outcome.workers) == (plan.NODES, plan.WORKERS)
    shape = "" if is_usual else f" --nodes {outcome.nodes} --workers {outcome.workers}"
    return PAGE.format(
        seed=outcome.seed,
        faults=outcome.planned,
        shape=shape
        + (" --sharded" if outcome.sharded else "")
        + (" --fixed" if outcome.left_alone is not None else ""),
        name="SOAK_SHARDED.md" if outcome.sharded else "SOAK.md",
        table=render(outcome),
        load=load,
        processors=os.cpu_count() or 1,
    )


def render(outcome: Outcome) -> str:
    """The summary as Markdown."""
    changes = verdict.changes(outcome.journal)
    replaced = verdict.replaced(outcome.journal, outcome.struck)
    steps = max((line["step"] for line in outcome.journal if line["event"] == "step"), default=0)
    lines = [
        f"Seed {outcome.seed}, torch {outcome.torch}, {outcome.nodes} nodes of {outcome.workers} workers.",
        f"{len(outcome.injections)} of {outcome.planned} faults, {outcome.seconds:.0f} s, {steps} steps.",
        f"{changes.moves} changes in place, {changes.restarts} restarts of all workers.",
        f"Survivors that were replaced (gloo left them in a collective, or they were late): {len(replaced)}.",
        "",
        "| law | held |",
        "|---|---|",
        *(f"| {law} | {'yes' if not found else 'NO'} |" for law, found in violations(outcome).items()),
        "",
        "| fault | point | times | of these during a change | median outage | longest |",
        "|---|---|---|---|---|---|",
        *_rows(outcome),
        "",
        "|  | descriptors | threads | memory, MiB |",
        "|---|---|---|---|",
        *_lives(outcome),
    ]
    return "\n".join(lines) + "\n"


def _rows(outcome: Outcome) -> list[str]:
    gaps = outages(outcome.journal, outcome.injections)
    rows = []
    for kind in plan.KINDS:
        for point in plan.POINTS:
            name = f"{kind} {point}"
            mine = [pair for pair in zip(outcome.injections, gaps, strict=True) if pair[0].kind == name]
            if mine:
                paired, costs = sum(injection.paired for injection, _ in mine), [gap for _, gap in mine]
                cost = f"{statistics.median(costs):.1f} s | {max(costs):.1f} s"
                rows.append(f"| {kind.replace('_', ' ')} | {point} | {len(mine)} | {paired} | {cost} |")
    return rows


def _lives(outcome: Outcome) -> list[str]:
    return [
        *(_life(f"a worker in {life.generations} groups of {life.world}", life) for life in _longest(outcome.journal)),
        *(
            _life(f"a launcher's process, read {life.generations} times in groups of {life.world}", life)
            for life in _longest(outcome.launchers)
        ),
    ]


def _longest(lines: Sequence[Line]) -> list[verdict.Life]:
    return sorted(verdict.lives(lines), key=lambda life: -life.generations)[:4]


def _life(name: str, life: verdict.Life) -> str:
    memory = f"{life.early['kib'] / 1024:.0f} -> {life.late['kib'] / 1024:.0f}"
    return f"| {name} | {_change(life, 'descriptors')} | {_change(life, 'threads')} | {memory} |"


def _change(life: verdict.Life, kind: str) -> str:
    return f"{life.early[kind]} -> {life.late[kind]}"
