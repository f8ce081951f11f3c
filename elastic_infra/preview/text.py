"""A comparison for a terminal: one line for each job, then its changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from elastic_infra.preview.formatting import figures, from_to, places, shortened, tally
from elastic_infra.preview.model import Comparison, Consequence, JobDiff

MAX_PLACES: Final = 2

_STYLES: Final = {
    Consequence.UNKNOWN: "bold red",
    Consequence.REMOVED: "bold red",
    Consequence.RESTART: "bold red",
    Consequence.ADDED: "bold green",
    Consequence.IN_PLACE: "yellow",
    Consequence.NONE: "dim",
}


def print_text(comparison: Comparison, console: Console) -> None:
    """Print all changes of the jobs that differ, and one line about the others."""
    for job in comparison.jobs:
        if job.consequence is not Consequence.NONE or job.changes:
            _print_job(job, console)
    unchanged = [job.title for job in comparison.jobs if job.consequence is Consequence.NONE and not job.changes]
    if unchanged:
        console.print(Text(f"unchanged: {', '.join(unchanged)}", style="dim"))
    console.print(Text(f"{', '.join(tally(comparison)) or 'no training job changes'}."))


def _print_job(job: JobDiff, console: Console) -> None:
    renamed = f" (renamed from {job.renamed_from})" if job.renamed_from else ""
    console.print(Text.assemble((job.consequence.value, _STYLES[job.consequence]), f"  {job.title}{renamed}"))
    for change in job.changes:
        reach, more = places(change.manifest_paths, MAX_PLACES)
        named = ", ".join([*reach, *([f"and {more} more"] if more else [])]) or "nothing"
        line = Text(f"    {shortened(change)}: {from_to(change)}  ")
        console.print(line.append(change.consequence.value, _STYLES[change.consequence]))
        console.print(Text(f"        reaches {named}", "dim"), soft_wrap=True)
    for note in _notes(job):
        console.print(Text(f"    {note}"))
    console.print()


def _notes(job: JobDiff) -> Iterator[str]:
    yield from figures(job)
    yield from (f"warning: {warning}" for warning in job.warnings)
