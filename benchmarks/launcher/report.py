"""From samples to the document: medians, ratios, and whether each aim was met. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.common.results import Results, listed, table
from benchmarks.launcher import measure
from benchmarks.launcher.measure import Sample, Summary

USUAL_IMPORT_SECONDS: Final = 3.0
"""An outage may take as long as importing torch does, and no less than this."""


@dataclass(frozen=True)
class Row:
    """What is measured, and what is aimed at."""

    name: str
    of_plain: float | None = None
    """The median may be this part of plain torchrun's."""
    of_tuned: float | None = None
    at_most: float | None = None
    """In the row's unit, for the median; for ``p95`` where that is set."""
    p95: bool = False
    is_outage: bool = True
    unit: str = "s"


def _figure(name: str, at_most: float | None = None, unit: str = "s", *, p95: bool = False) -> Row:
    return Row(name, at_most=at_most, unit=unit, p95=p95, is_outage=False)


ROWS: Final = (
    Row("start with 2 of 3 nodes", of_plain=1 / 4, is_outage=False),
    Row("scale up 2 to 3", of_plain=1 / 20, of_tuned=1 / 3),
    Row("scale down 3 to 2"),
    Row("lost node, 3 to 2", of_plain=1 / 10, of_tuned=1 / 3),
    Row("lost store host, 2 to 1", of_plain=1 / 10, of_tuned=1 / 3),
    Row("restart of a store of its own"),
    Row("restart of 2 workers", of_plain=1 / 5),
    Row("start of 2 workers on a node", is_outage=False),
    Row("scale up 2 to 4 workers", of_plain=1 / 20, of_tuned=1 / 3),
    Row("lost node, 4 to 2 workers", of_plain=1 / 10, of_tuned=1 / 3),
    Row("start of 8 workers on a node", is_outage=False),
    Row("start of 8 workers, the script sets a variable first", is_outage=False),
    Row("scale up 8 to 16 workers", of_plain=1 / 20, of_tuned=1 / 3),
    Row("lost node, 16 to 8 workers", of_plain=1 / 10, of_tuned=1 / 3),
    Row("restart of 8 workers", of_plain=1 / 5),
    Row("restart of 2 workers that import transformers", of_plain=1 / 5, of_tuned=1 / 5, is_outage=False),
    Row("restart of 2 workers that import lightning", of_plain=1 / 5, of_tuned=1 / 5, is_outage=False),
    _figure("R1 handler of SIGTERM is live", 0.15),
    _figure("R1 SIGTERM to the end, as PID 1 without workers", 2.0, p95=True),
    _figure("R2 grace given where 6 s were asked for", 7.0, p95=True),
    _figure("R4 worker killed to sibling told", 0.1, p95=True),
    _figure("R4 sibling told to new workers", 2.0, p95=True),
    _figure("R6 frozen agent with dead workers to new workers", 15.0, p95=True),
    _figure("R7 lost node to a step without it", 5.0, p95=True),
    _figure("launcher's start to READY", 0.3),
    _figure("launcher's start to the script's first line"),
    _figure("mounted launcher's start to READY"),
    _figure("mounted launcher's start to the script's first line"),
    _figure("CPU of the launcher's processes while training", 0.5, "%"),
    _figure("memory of the launcher's processes, shared pages by share", 80.0, "MB"),
    _figure("memory of the launcher's processes, resident", None, "MB"),
    _figure("memory of the fork server and its 2 workers, by share", None, "MB"),
    _figure("CPU of the launcher's processes while 8 workers train", 0.5, "%"),
    _figure("memory of the launcher's processes beside 8 workers, shared pages by share", 80.0, "MB"),
    _figure("memory of the launcher's processes beside 8 workers, resident", None, "MB"),
    _figure("memory of the fork server and its 8 workers, by share", None, "MB"),
)

NOTE: Final = """\
An outage is the longest time without a training step of any worker, from the event on, in the workers' own journal;
it ends when a survivor trains again, whether or not a replacement comes. A start counts from the first launcher's
start to the first step, torch's import included; READY is when a node tells the others that it can be in a group.
Every node is a launcher with a process tree of its own on loopback, and has one worker where no number is named; a
lost node is that whole tree, killed at once; a node that leaves gets SIGTERM. Events strike a job that has trained
for 3 s, and in which, for `ours`, every fork server is ready. `plain` is torchrun as it comes; `tuned` is
torchrun with `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` and `last_call_timeout=3`; `ours` has default settings and writes
its events to a file. `lost`: no launcher was left, or no step came for 100 s. On loopback every node owns the
endpoint's address, so a survivor of ours serves the store again; where only one node can, the store has a process of
its own. What a control does not do within its patience (20 to 60 s) is `ignored`, `never` or `unaware`. Medians, with
p95 by nearest rank, and the number of runs."""


def results(samples: Sequence[Sample], machine: Sequence[str], import_seconds: float) -> dict[str, Any]:
    """What is kept of a measurement."""
    kept = [asdict(sample) for sample in samples]
    return {"machine": [*machine], "import_seconds": import_seconds, "samples": kept}


def document(results: Results) -> str:
    """The whole Markdown file."""
    samples = [Sample(**sample) for sample in results["samples"]]
    lines = [
        _line(samples, row, results["import_seconds"])
        for row in ROWS
        if measure.summary(samples, row.name, "ours").runs
    ]
    head = ["", "ours", "tuned torchrun", "plain torchrun", "ours / tuned", "ours / plain", "aim", "met"]
    return f"# This launcher beside torchrun\n\n{listed(results)}\n\n{table([head, *lines])}\n\n{NOTE}\n"


def _line(samples: Sequence[Sample], row: Row, import_seconds: float) -> list[str]:
    ours, tuned, plain = (measure.summary(samples, row.name, arm) for arm in ("ours", "tuned", "plain"))
    aims = _aims(row, ours, tuned, plain, import_seconds)
    return [
        row.name,
        *(cell(summary, row.unit) for summary in (ours, tuned, plain)),
        *(ratio(ours, control) for control in (tuned, plain)),
        ", ".join(text if met is not None else f"{text} (not measured)" for text, met in aims),
        verdict([met for _, met in aims]),
    ]


def cell(summary: Summary, unit: str) -> str:
    """``1.23 s (p95 2.00, n 10)``, and what became of runs without a figure."""
    without = ", ".join(
        outcome if count == summary.runs == 1 else f"{outcome} {count} of {summary.runs}"
        for outcome, count in summary.without.items()
    )
    if summary.median is None or summary.p95 is None:
        return without or "-"
    figure = f"{_short(summary.median)} {unit} (p95 {_short(summary.p95)}, n {len(summary.values)})"
    return f"{figure}; {without}" if without else figure


def ratio(ours: Summary, control: Summary) -> str:
    """Of the medians; a control that never gave a figure has its outcome there."""
    if ours.median is None or not control.runs:
        return "-"
    if control.median is None:
        return ", ".join(control.without)
    return f"1/{control.median / ours.median:.1f}" if ours.median else "0"


def verdict(met: Sequence[bool | None]) -> str:
    """Of all aims of a row; one without a figure to hold it against is neither met nor missed."""
    known = [each for each in met if each is not None]
    if not known:
        return "-"
    if not all(known):
        return "**no**"
    return "yes" if len(known) == len(met) else "yes, as far as measured"


def _aims(
    row: Row, ours: Summary, tuned: Summary, plain: Summary, import_seconds: float
) -> list[tuple[str, bool | None]]:
    """Each aim in words, and whether it was met; None where there is nothing to hold it against."""
    aims: list[tuple[str, bool | None]] = []
    for name, part, control in (("plain", row.of_plain, plain), ("tuned", row.of_tuned, tuned)):
        if part is not None:
            aims.append((f"1/{1 / part:.0f} of {name}", _is_part(ours, control, part)))
    limit = max(import_seconds, USUAL_IMPORT_SECONDS) if row.is_outage else row.at_most
    if limit is not None:
        value = ours.p95 if row.p95 else ours.median
        aims.append((f"{'p95 ' if row.p95 else ''}<= {_short(limit)} {row.unit}", _is_within(ours, value, limit)))
    return aims


def _is_part(ours: Summary, control: Summary, part: float) -> bool | None:
    if not control.runs or ours.median is None:
        return None
    return not ours.without and (control.median is None or ours.median <= part * control.median)


def _is_within(ours: Summary, value: float | None, limit: float) -> bool:
    return value is not None and not ours.without and value <= limit


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004  two digits that mean something
