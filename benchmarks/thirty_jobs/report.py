"""From each round's figures to the page of thirty jobs in one stack. Pure."""

from __future__ import annotations

from typing import Final

from benchmarks.common.results import Results, listed, table
from benchmarks.common.rounds import Figure, Rounds, cell

OWN: Final = "own"
DELIVERIES: Final = {
    "image": "in the image (`delivery: image`)",
    "elsewhere": "one `ElasticLauncher`, in a stack of its own",
    "shared": "one `ElasticLauncher`, in the stack of the jobs",
    OWN: "a ConfigMap for each job (the default)",
}
BASE: Final = "image"
FIGURES: Final = {
    "up": Figure("`up`, s", is_time=True),
    "up_cpu": Figure("`up`, CPU s"),
    "preview": Figure("`preview`, s", is_time=True),
    "preview_cpu": Figure("`preview`, CPU s"),
    "state": Figure("state, MB", 1e6, 2),
}

HOW: Final = """\
{jobs} jobs of 2 to 4 nodes. Medians; in brackets p95 by nearest rank where a time was taken more than once (the
largest, of so few), then the median of the ratios to the first row's run of the same round. Where a row has fewer
runs than the first, its ratios are those of the first rounds. CPU time is that of the program, the stand-in provider
and the engine; a busy machine changes it less than the time on the clock. Each round's figures are in
[RESULTS.json](RESULTS.json)."""

ABOUT: Final = """\
The preview follows the update and changes nothing. The engine writes the state after each step, as it does by default
with a backend of files: that is why the size of the state costs time.

Before there was an `ElasticLauncher`, thirty jobs with a ConfigMap each took 5 min 22 s of `up` and 31 MB of state, on
another machine.
"""
"""With what the deliveries were made for; kept by hand, since no code of today has these figures."""


def document(results: Results) -> str:
    """The figures as Markdown."""
    how = HOW.format(jobs=results["jobs"])
    return "\n\n".join(["# Thirty jobs in one stack", listed(results), how, shown(results), ABOUT])


def shown(results: Results) -> str:
    """The table: a row for each delivery."""
    rounds: dict[str, Rounds] = results["rounds"]
    heads = ["the launcher is delivered", "runs", *(figure.head for figure in FIGURES.values())]
    return table([heads, *(_row(delivery, runs, rounds[BASE]) for delivery, runs in rounds.items())])


def _row(delivery: str, rounds: Rounds, base: Rounds) -> list[str]:
    cells = (cell(name, figure, rounds, base) for name, figure in FIGURES.items())
    return [DELIVERIES[delivery], str(len(rounds)), *cells]
