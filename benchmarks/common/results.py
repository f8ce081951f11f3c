"""A benchmark's results: facts of the machine and the figures of each run as JSON, and the page that is made of them.

Every file has ``machine``, lines that a reader must know to judge the figures. A page is made of its file and of
nothing else: ``python -m tools.pages --write`` makes all pages again.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

Results = Mapping[str, Any]
"""The content of a file."""


def machine(command: str, *packages: str) -> list[str]:
    """The facts, one line each: versions of these packages, Python and Linux, processors, load, day and command."""
    versions = [f"{package} {metadata.version(package)}" for package in packages]
    system = [f"Python {platform.python_version()}", f"Linux {platform.release()}", f"{os.cpu_count()} CPUs"]
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return [", ".join([*versions, *system]), f"load average at the start {load}", measured(command)]


def command(module: str, arguments: Sequence[str]) -> str:
    """How a program was called, to be read and to be called again."""
    return shlex.join(["python", "-m", module, *arguments])


def measured(command: str) -> str:
    """The fact of when a measurement was made, and by which command."""
    return f"measured {datetime.now(timezone.utc):%Y-%m-%d} by `{command}`"


def save(path: Path, results: Results, document: Callable[[Results], str]) -> str:
    """Write the figures, and their page beside them; gives the page's text."""
    path.write_text(text(results))
    made = document(results)
    page(path).write_text(made)
    return made


def load(path: Path) -> dict[str, Any]:
    """The figures that were saved there."""
    results: dict[str, Any] = json.loads(path.read_text())
    return results


def text(results: Results) -> str:
    """The figures as the text of a file."""
    return json.dumps(results, indent=1) + "\n"


def page(path: Path) -> Path:
    """Where the page of these figures is."""
    return path.with_suffix(".md")


def listed(results: Results) -> str:
    """The facts as Markdown."""
    return "\n".join(f"- {line}" for line in results["machine"])


def table(rows: Iterable[Sequence[str]]) -> str:
    """Markdown; the first row is the head."""
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))
