"""From the figures to the page, and to the tables in the documentation. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.common.results import Results, listed, table
from benchmarks.launcher import report
from benchmarks.launcher.measure import Summary
from benchmarks.training import labels
from benchmarks.training.jobs import ARMS, IN_PLACE, RESTART
from elastic_infra.launcher.protocol.move import PARK_SECONDS

Changes = Sequence[Mapping[str, Any]]
"""What each event cost each job."""

AIMS: Final = {
    (labels.KILL, 10): 1 / 5,
    (labels.KILL, 300): 1 / 2,
    (labels.KILL, 1000): 1 / 2,
    (labels.LOSE, 10): 1 / 5,
    (labels.LOSE, 300): 1 / 2,
    (labels.LOSE, 1000): 1 / 2,
    (labels.GROW, 10): 1 / 5,
    (labels.GROW, 300): 1 / 2,
    (labels.GROW, 1000): 0.7,
}
"""The part of the restart's outage that a change in place may take; a large state's transfer dominates a growth."""
SAVE_AIM: Final = 1 / 10
"""The part of the time of ``torch.save`` that a snapshot may take."""
RESTORE_AIM: Final = 1 / 5
"""The part of a restore from a cold disk that one from memory may take."""
STEP_AIM: Final = 0.001
"""The part of a step that the loop may add to it."""
NEIGHBOUR_AIM: Final = 0.02
"""The part of the training time that snapshots with their copies on another node may take."""
FALLBACK_AIM: Final = PARK_SECONDS
"""Seconds by which a change may be slower than a restart where a worker misses the deadline of a move."""
STEP_SECONDS: Final = 0.25
"""A step of a model of the measured size is usually longer."""

NOTE: Final = """\
A state is the weights of a stack of linear layers with Adam's two moments. A step computes one sample, sleeps for
0.05 s, and exchanges a third of the state's size, because all workers share these two processors. Each node has one
worker. A job trains on two nodes; the worker with the highest rank is killed, a third node joins, and a node is lost,
with all its processes at once.

The outage runs from the end of the last step before the change to the end of the first *new* step behind it: steps that
are done again, saves and restores count, and one ordinary step is subtracted: the new group's, or the last group's
where the new one made fewer than four. `restart` is the same script without `ElasticGroup`: all workers start again
from warm processes and restore the snapshot in memory. That one is two steps old when a worker dies, because both arms
take one every four steps; by default, snapshots of large states are rarer and a restart repeats more. `torchft` has a
worker (replica) that was killed started again at once by the benchmark, and its coordinator waits for missing replicas
for a second instead of a minute.

In place the other node trains on while the successor of a killed worker builds the model, and stops once more to give
it the state. `over 100`: five new steps in a row did not come within 100 s; `-`: not measured.

*Until whole* sums the outages of all changes up to the first step with all workers again."""


COPIES_NOTE: Final = """\
A snapshot goes to memory and to disk, and training waits for the copy to memory alone. The first two snapshots also
make the memory; the copy of a later one is bound by the speed of the memory. With `overlap` a thread copies while the
next step computes: training waits at the end of one step and before the optimizer of the next, and computes more slowly
in between. That snapshot goes to memory alone. A restore is that of a new process whose model and optimizer are built.
Figures are medians, with p95 by nearest rank and the number of repetitions."""


COPIED: Final = (
    "Of a state of {size}, training waits {snapshot} s for a snapshot, {first} s for each of the first two, which make "
    "the memory, and {save} s for `torch.save`; a new worker restores from memory in {memory} s, and from disk in "
    "{disk} s."
)
"""The sentence of the documentation about copies."""


STEPS_NOTE: Final = """\
What `elastic.step()`, the loop around it and the report to the launcher add to each step of a model of this size in a
worker of the launcher, without snapshots: by default their copies take a hundredth of the time."""


SHARDED_NOTE: Final = """\
A model under FSDP2 that the script builds for each group, with the same computation and events. The size is that of all
shards together. A survivor keeps its process and gets its part of the newest snapshot from its own memory and from its
neighbours; a restart reads the same snapshot in new processes."""


NEIGHBOURS_NOTE: Final = """\
Two nodes of one worker, whose model is sharded: each has its own shards in its memory, and a copy of the other's.
Training waits for the copy to its own memory, and where the one before has not arrived, as often as the library's own
choice has it. The figure is the part of {seconds:g} s of training between the end of the script's own work in a step
and the end of the step, in each of {jobs} jobs."""


STOPPED_NOTE: Final = """\
Three nodes of one worker train; the worker of one is stopped by a signal and another node is lost at once. The stopped
worker cannot leave its step, so that its node kills it at the deadline of a move and starts another one, and the third
node's worker keeps its process. Outages as above; the aim is the deadline of a step that is short."""


def document(results: Results) -> str:
    """The page of all figures, as Markdown."""
    parts = (
        "# Changes, snapshots and steps of a training in place",
        listed(results),
        "## Outages, in seconds",
        table(_outages(results["changes"])),
        "## Until whole, in seconds, and whole steps done again",
        table(_whole(results["changes"])),
        NOTE,
        *_sharded(results),
        f"## Copies of a state of {results['copies']['megabytes']} MB by one worker, in seconds",
        table(_copies(results)),
        COPIES_NOTE,
        "## A step in which nothing happens",
        table(_steps(results)),
        STEPS_NOTE,
        *_neighbours(results),
        *_stopped(results),
    )
    return "\n\n".join(parts) + "\n"


def headline(results: Results) -> str:
    """The table of the documentation: median outages of each arm."""
    changes = results["changes"]
    arms = _arms(changes)
    rows = [["state", "what happens", *arms]]
    for event, megabytes in _events(changes):
        found = [_summary(changes, event, megabytes, arm, "first") for arm in arms]
        rows.append([_size(megabytes), event, *(_two_digits(each.median) if each.runs else "-" for each in found)])
    return table(rows)


def copied(results: Results) -> dict[str, str]:
    """The figures of ``COPIED``."""
    saves, restores = results["copies"]["saves"], results["copies"]["restores"]
    seconds = {name: _two_digits(statistics.median(values)) for name, values in {**saves, **restores}.items()}
    names = {
        "snapshot": labels.SNAPSHOT,
        "first": labels.FIRST,
        "save": labels.TORCH,
        "memory": labels.MEMORY,
        "disk": labels.COLD,
    }
    size = _size(results["copies"]["megabytes"])
    return {"size": size, **{name: seconds[copy] for name, copy in names.items()}}


def _sharded(results: Results) -> Iterator[str]:
    if changes := results.get("sharded"):
        yield from ("## A sharded model", table(_outages(changes)), table(_whole(changes)), SHARDED_NOTE)


def _neighbours(results: Results) -> Iterator[str]:
    if found := results.get("neighbours"):
        parts = found["waited"]
        verdict = report.verdict([max(parts) <= NEIGHBOUR_AIM])
        rows = [
            ["part of the time that training waits", "aim", "met"],
            [", ".join(f"{part:.2%}" for part in parts), f"<= {NEIGHBOUR_AIM:.0%}", verdict],
        ]
        yield from (f"## Copies of {found['megabytes']} MB on another node", table(rows))
        yield NEIGHBOURS_NOTE.format(seconds=labels.WINDOW_SECONDS, jobs=len(parts))


def _stopped(results: Results) -> Iterator[str]:
    if changes := results.get("stopped"):
        (megabytes,) = {change["megabytes"] for change in changes}
        ours, control = (_summary(changes, labels.STOPPED, megabytes, arm, "first") for arm in (IN_PLACE, RESTART))
        more = None if ours.median is None or control.median is None else ours.median - control.median
        judged = (
            _shown(more),
            f"<= {FALLBACK_AIM:g}",
            report.verdict([None if more is None else more <= FALLBACK_AIM]),
        )
        rows = [
            ["state", "what happens", IN_PLACE, RESTART, f"{IN_PLACE} - {RESTART}", "aim", "met"],
            [_size(megabytes), labels.STOPPED, _cell(ours), _cell(control), *judged],
        ]
        yield from ("## A change in which a worker cannot move, in seconds", table(rows), STOPPED_NOTE)


def _outages(changes: Changes) -> Iterator[list[str]]:
    arms = _arms(changes)
    yield ["state", "what happens", *arms, f"{IN_PLACE} / {RESTART}", "aim", "met"]
    for event, megabytes in _events(changes):
        found = {arm: _summary(changes, event, megabytes, arm, "first") for arm in arms}
        ratio, aim = _part(found.get(IN_PLACE), found.get(RESTART)), AIMS.get((event, megabytes))
        yield [_size(megabytes), event, *map(_cell, found.values()), _shown(ratio), *_judged(ratio, aim)]


def _whole(changes: Changes) -> Iterator[list[str]]:
    arms = _arms(changes)
    yield ["state", "what happens", *arms, *(f"{arm}: steps" for arm in arms)]
    for event, megabytes in _events(changes):
        whole = [_cell(_summary(changes, event, megabytes, arm, "whole")) for arm in arms]
        again = [_summary(changes, event, megabytes, arm, "repeated").median for arm in arms]
        yield [_size(megabytes), event, *whole, *("-" if steps is None else f"{steps:g}" for steps in again)]


def _copies(results: Results) -> Iterator[list[str]]:
    found = {**results["copies"]["saves"], **results["copies"]["restores"]}
    summaries = {name: Summary(tuple(values), {}) for name, values in found.items()}
    compared = {
        labels.SNAPSHOT: (labels.TORCH, SAVE_AIM),
        labels.OVERLAP: (labels.TORCH, SAVE_AIM),
        labels.MEMORY: (labels.COLD, RESTORE_AIM),
    }
    yield ["", "", "part", "aim", "met"]
    for name, summary in summaries.items():
        control, aim = compared.get(name, (None, None))
        ratio = _part(summary, summaries[control]) if control else None
        against = f"{_shown(ratio)} of {control}" if control else ""
        verb = "restore " if name in labels.RESTORE_KINDS else ""
        yield [f"{verb}{name}", _cell(summary), against, *_judged(ratio, aim)]


def _steps(results: Results) -> Iterator[list[str]]:
    yield ["", "added to a step", f"part of a step of {STEP_SECONDS:g} s", "aim", "met"]
    for arm in (IN_PLACE, RESTART):
        summary = Summary(tuple(value * 1e6 for value in results["steps"][arm]), {})
        part = (summary.median or 0.0) / 1e6 / STEP_SECONDS
        text = f"{summary.median:.0f} µs (p95 {summary.p95:.0f}, n {summary.runs})"
        yield [arm, text, f"{part:.3%}", f"{STEP_AIM:.1%}", report.verdict([part <= STEP_AIM])]


def _summary(changes: Changes, event: str, megabytes: int, arm: str, figure: str) -> Summary:
    mine = [
        change for change in changes if (change["event"], change["megabytes"], change["arm"]) == (event, megabytes, arm)
    ]
    lost = sum(change["cost"] is None for change in mine)
    values = tuple(float(change["cost"][figure]) for change in mine if change["cost"] is not None)
    return Summary(values, {f"over {labels.LOST_SECONDS:g}": lost} if lost else {})


def _arms(changes: Changes) -> list[str]:
    there = {change["arm"] for change in changes}
    return [arm for arm in ARMS if arm in there]


def _events(changes: Changes) -> Iterator[tuple[str, int]]:
    sizes = sorted({change["megabytes"] for change in changes})
    return ((event, megabytes) for event in labels.EVENTS for megabytes in sizes)


def _part(ours: Summary | None, control: Summary | None) -> float | None:
    if ours is None or control is None or ours.median is None or not control.median:
        return None
    return ours.median / control.median


def _judged(ratio: float | None, aim: float | None) -> tuple[str, str]:
    if aim is None:
        return "", ""
    return f"<= {aim:g}", report.verdict([None if ratio is None else ratio <= aim])


def _shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _cell(summary: Summary) -> str:
    lost = ", ".join(f"{outcome} {count} of {summary.runs}" for outcome, count in summary.without.items())
    if summary.median is None:
        return lost or "-"
    figure = f"{summary.median:.2f} (p95 {summary.p95:.2f}, n {len(summary.values)})"
    return f"{figure}; {lost}" if lost else figure


def _two_digits(value: float | None) -> str:
    if value is None:
        return f"over {labels.LOST_SECONDS:g}"
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def _size(megabytes: int) -> str:
    return f"{megabytes / 1000:g} GB" if megabytes >= 1000 else f"{megabytes} MB"  # noqa: PLR2004  a thousand of them
