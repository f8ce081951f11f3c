"""The headline table: five things that happen to a job, under this launcher and under torchrun. Pure.

Beside it the page of what the quick benchmark measured.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.common.results import Results, listed, table
from benchmarks.launcher.measure import Summary
from benchmarks.launcher.report import cell

ROWS: Final = {
    "a third node joins": "scale up 2 to 3",
    "a node leaves": "scale down 3 to 2",
    "a node is lost": "lost node, 3 to 2",
    "the node that serves the rendezvous is lost": "lost store host, 2 to 1",
    "a worker crashes": "restart of 2 workers",
}
"""What happens, in the words of the README, and the name of its row in the launcher's table."""
WITH_START: Final = {"start with 2 of 3 nodes, to the first step": "start with 2 of 3 nodes", **ROWS}

ARMS: Final = ("ours", "tuned", "plain")
HEAD: Final = ("what happens", "this launcher", "torchrun, tuned", "torchrun")
_CELL: Final = re.compile(r"(?:(?P<median>[\d.]+) s \(p95 [\d.]+, n \d+\))?(?:; )?(?P<lost>lost(?: .*)?)?")


class Cell(NamedTuple):
    """What one launcher made of one event."""

    median: float | None
    """Seconds without a step; None where no run gave a figure."""
    was_lost: bool = False
    """Whether the job was lost in at least one run."""

    def __str__(self) -> str:
        """Two digits that mean something: ``0.5``, ``23``, ``83, or job lost``, ``job lost``."""
        if self.median is None:
            return "job lost"
        figure = f"{self.median:.1f}" if self.median < 10 else f"{self.median:.0f}"  # noqa: PLR2004  two digits
        return f"{figure}, or job lost" if self.was_lost else figure


Cells = Mapping[str, Mapping[str, object]]
"""By row of the launcher's table, and by arm: a cell, or its text."""

ABOUT: Final = """\
What `make bench-quick` measured when its committed ratios were last replaced; a later run is held against these. Each
run of this launcher and the run of tuned torchrun that follows it are a pair, and a ratio is the median of those of the
pairs. Medians, with p95 by nearest rank (of so few: the slowest) and the number of runs. The whole took {seconds} s.
[The launcher's table](../launcher/RESULTS.md) says what is measured."""


def committed(results: str) -> dict[str, dict[str, Cell]]:
    """The cells of the launcher's table, ``benchmarks/launcher/RESULTS.md``, as far as the headline needs them.

    Raises:
        ValueError: a row is missing there, or a cell is no figure.
    """
    lines = [line.strip("| ").split(" | ") for line in results.splitlines() if line.startswith("|")]
    by_name = {name: cells for name, *cells in lines}
    missing = [name for name in WITH_START.values() if name not in by_name]
    if missing:
        message = f"the launcher's table has no row {', '.join(missing)}"
        raise ValueError(message)
    return {name: dict(zip(ARMS, map(_read, by_name[name]), strict=False)) for name in WITH_START.values()}


def markdown(cells: Cells, rows: Mapping[str, str] = ROWS) -> str:
    """The table as it stands in the documents; by default with the rows of the README."""
    body = ((what, *(str(cells[name][arm]) for arm in ARMS)) for what, name in rows.items())
    lines = (HEAD, ("---",) * len(HEAD), *body)
    return "\n".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|" for line in lines)


def document(results: Results) -> str:
    """The page of the quick benchmark, as Markdown."""
    about = ABOUT.format(seconds=results["wall_seconds"])
    texts = ("# The headline's quick rows", listed(results), table(_rows(results["seconds"])), about)
    return "\n\n".join(texts) + "\n"


def _rows(seconds: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Iterator[list[str]]:
    yield ["", "ours", "tuned torchrun", "ours / tuned", "each pair"]
    for row, by_arm in seconds.items():
        each = parts(by_arm)
        ratio = said(statistics.median(each)) if each else "-"
        yield [row, *(cell(_summary(by_arm[arm]), "s") for arm in ARMS[:2]), ratio, ", ".join(map(said, each)) or "-"]


def _summary(values: Sequence[float | None]) -> Summary:
    known = tuple(value for value in values if value is not None)
    return Summary(known, {"lost": len(values) - len(known)} if len(known) < len(values) else {})


def parts(by_arm: Mapping[str, Sequence[float | None]]) -> list[float]:
    """This launcher's time as a part of tuned torchrun's, for each pair in which neither lost the job."""
    pairs = zip(by_arm["ours"], by_arm["tuned"], strict=True)
    return [ours / tuned for ours, tuned in pairs if ours is not None and tuned is not None]


def said(part: float) -> str:
    """A part as it is shown: ``1/12.3``."""
    return f"1/{1 / part:.1f}"


def _read(text: str) -> Cell:
    found = _CELL.fullmatch(text)
    if found is None or not text:
        message = f"{text!r} is no figure of the launcher's table"
        raise ValueError(message)
    return Cell(float(found["median"]) if found["median"] else None, found["lost"] is not None)
