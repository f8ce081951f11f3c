"""The outcome of a soak in place as data, the laws, and the page with what each kind of fault cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.common import faults
from benchmarks.common.results import Results, listed, table
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


PAGE: Final = """\
# {title}

{facts}

Random faults against a job of real launchers whose workers are moved and not restarted wherever that can be: SIGKILL to
workers and to whole nodes at each point of a step, and in the middle of the moves that follow. A successor of a killed
node comes a moment later, while the next faults strike. The training is exact: a sample that is lost or counted twice
changes all weights from then on. The same seed gives the same faults. `make soak` runs a dozen.

Seed {seed}, {nodes} nodes of {workers} workers. {struck} of {planned} faults in {seconds:.0f} s, {steps} steps.
{moves} changes in place, {restarts} restarts of all workers. Survivors that were replaced (gloo left them in a
collective, or they were late): {replaced}.

{laws}

{costs}

{lives}

The outage of a fault is the longest time without a step from it on to the next fault; p95 is by nearest rank. One
worker, that which has lived longest, is spared by {spared} of {eldest_every} faults, and the launcher of its node with
it, so that they show what a process gathers over many generations: the most that it held in the first third of its
groups of one size, and the least in the last third. The launchers' processes are supervisor, agent and fork server,
read before each fault that does not strike a change.
"""


def results(outcome: Outcome, machine: Sequence[str]) -> dict[str, Any]:
    """What is kept of a run on a machine with these facts."""
    steps = [line["step"] for line in outcome.journal if line["event"] == "step"]
    gaps = outages(outcome.journal, outcome.injections)
    return {
        "machine": [*machine],
        "seed": outcome.seed,
        "nodes": outcome.nodes,
        "workers": outcome.workers,
        "sharded": outcome.sharded,
        "fixed": outcome.left_alone is not None,
        "planned": outcome.planned,
        "eldest_every": plan.ELDEST_EVERY,
        "seconds": outcome.seconds,
        "steps": max(steps, default=0),
        **asdict(verdict.changes(outcome.journal)),
        "replaced": len(verdict.replaced(outcome.journal, outcome.struck)),
        "laws": violations(outcome),
        "faults": [
            {"kind": injection.kind, "paired": injection.paired, "seconds": round(gap, 3)}
            for injection, gap in zip(outcome.injections, gaps, strict=True)
        ],
        "longest_lives": {"worker": _longest(outcome.journal), "launcher": _longest(outcome.launchers)},
    }


def document(found: Results) -> str:
    """The page as Markdown."""
    struck = [{**fault, "kind": _name(*fault["kind"].split())} for fault in found["faults"]]
    kinds = [_name(kind, point) for kind in plan.KINDS for point in plan.POINTS]
    told = {
        "title": "The soak in place" + ", a sharded model" * found["sharded"] + ", a fixed size" * found["fixed"],
        "facts": listed(found),
        "struck": len(struck),
        "laws": faults.laws(found["laws"]),
        "costs": faults.costs(struck, kinds),
        "lives": table([("", "descriptors", "threads", "memory, MiB"), *_lives(found["longest_lives"])]),
        "spared": found["eldest_every"] - 1,
    }
    return PAGE.format_map({**found, **told})


def _name(kind: str, point: str) -> str:
    return f"{kind.replace('_', ' ')}, {point}"


def _longest(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [asdict(life) for life in sorted(verdict.lives(lines), key=lambda life: -life.generations)[:4]]


def _lives(longest: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[list[str]]:
    for life in longest["worker"]:
        yield [f"a worker in {life['generations']} groups of {life['world']}", *_changes(life)]
    for life in longest["launcher"]:
        name = f"a launcher's process, read {life['generations']} times in groups of {life['world']}"
        yield [name, *_changes(life)]


def _changes(life: Mapping[str, Any]) -> Iterator[str]:
    for kind, unit in (("descriptors", 1), ("threads", 1), ("kib", 1024)):
        yield f"{life['early'][kind] / unit:.0f} -> {life['late'][kind] / unit:.0f}"
