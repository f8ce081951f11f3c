"""What a benchmark on the cluster keeps, and its page: heading, how the figures were measured, and their table."""

from __future__ import annotations

import os
import platform
from typing import Any

from benchmarks.common.results import Results, listed, measured


def kept(found: object, *, module: str, place: str) -> dict[str, Any]:
    """The content of the results' file.

    Args:
        found: what was measured, as JSON can hold it.
        module: the benchmark's module, which writes the file with ``--write``.
        place: what the figures depend on, besides processors and kernel.
    """
    machine = f"{os.cpu_count()} CPUs, Linux {platform.release()}, {place}"
    return {"machine": [machine, measured(f"python -m {module} --write")], "found": found}


def page(title: str, results: Results, *, note: str, table: str) -> str:
    """The page's text.

    Args:
        title: heading of the page.
        results: the content of the results' file.
        note: what the figures mean and how they were taken.
        table: Markdown of the figures.
    """
    return f"# {title}\n\n{listed(results)}\n\n{note}\n\n{table}\n"
