"""The headline table: five things that happen to a job, under this launcher and under torchrun. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

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


def _read(cell: str) -> Cell:
    found = _CELL.fullmatch(cell)
    if found is None or not cell:
        message = f"{cell!r} is no figure of the launcher's table"
        raise ValueError(message)
    return Cell(float(found["median"]) if found["median"] else None, found["lost"] is not None)
