"""The Markdown page of a benchmark on the cluster: its heading, how the figures were measured, and their table."""

from __future__ import annotations

import os
import platform
from datetime import date


def page(title: str, *, module: str, place: str, note: str, table: str) -> str:
    """The page's text.

    Args:
        title: heading of the page.
        module: the benchmark's module, which writes the page with ``--write``.
        place: what the figures depend on, besides processors and kernel.
        note: what the figures mean and how they were taken.
        table: Markdown of the figures.
    """
    machine = f"{os.cpu_count()} CPUs, Linux {platform.release()}, {place}"
    measured = f"Measured {date.today()} on {machine} by `python -m {module} --write`."  # noqa: DTZ011  a date for readers
    return f"# {title}\n\n{measured} {note}\n\n{table}\n"
