"""A comparison as a comment on a pull request: one line a job, the worst first, details folded.

The same comparison gives the same text, so that a comment can be updated in place. The text fits into a comment for any
size of the change: details are left out first, then lines of the mildest jobs; the counts always stay.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Final

from elastic_infra.preview.formatting import (
    SECRET_CHANGED,
    figures,
    headline,
    on_one_line,
    places,
    shortened,
    tally,
)
from elastic_infra.preview.model import Change, Comparison, Consequence, JobDiff

MAX_LENGTH: Final = 65_536
"""GitHub's limit in characters. Counted in UTF-8 bytes here, which are never fewer, however characters are counted."""

MARKER: Final = "<!-- elastic-infra diff -->"
"""First line, by which a later run finds the comment it should update."""

MAX_VALUE: Final = 120
MAX_PLACES: Final = 3

_SIGNS: Final = {
    Consequence.UNKNOWN: "❓",
    Consequence.REMOVED: "⛔",
    Consequence.RESTART: "🔁",
    Consequence.ADDED: "🆕",
    Consequence.IN_PLACE: "✏️",
    Consequence.NONE: "⚪",
}


def as_markdown(comparison: Comparison, title: str = "Training jobs", link: str | None = None) -> str:
    """The comment.

    Args:
        title: its heading.
        link: URL of further details, such as the run that made the comment.
    """
    changed = [job for job in comparison.jobs if job.consequence is not Consequence.NONE or job.changes]
    head = [MARKER, f"### {_plain(title)}", "", _sentence(comparison)]
    foot = [f"[More]({_address(link)})"] if link else []
    table = _table(changed)
    blocks = [*_errors(comparison), *map(_details, changed), *_unchanged(comparison)]
    return _fitted(head, table, blocks, foot)


def _sentence(comparison: Comparison) -> str:
    parts = tally(comparison)
    return f"**{parts[0]}**{''.join(f', {part}' for part in parts[1:])}." if parts else "No training job changes."


def _table(jobs: Sequence[JobDiff]) -> list[str]:
    if not jobs:
        return []
    rows = [
        f"| {_SIGNS[job.consequence]} {job.consequence.value} | {_code(job.title)} | {_cell(headline(job))} |"
        for job in jobs
    ]
    return ["", "| consequence | job | what changes |", "|---|---|---|", *rows]


def _errors(comparison: Comparison) -> Iterator[str]:
    if comparison.errors:
        rows = [f"- {each.side}, {_code(each.path)}: {_plain(each.reason)}" for each in comparison.errors]
        yield "\n".join(["", "**Not compared:**", "", *rows])


def _unchanged(comparison: Comparison) -> Iterator[str]:
    names = [job.title for job in comparison.jobs if job.consequence is Consequence.NONE and not job.changes]
    if names:
        yield _folded(f"{len(names)} unchanged", [", ".join(map(_code, names))])


def _details(job: JobDiff) -> str:
    warnings = [f"> ⚠️ {_plain(warning)}" for warning in job.warnings]
    header = ["| setting | before | after | consequence | reaches |", "|---|---|---|---|---|"]
    table = [*header, *map(_row, job.changes)] if job.changes else []
    listed = [f"- {_plain(text)}" for text in figures(job)]
    parts = [part for part in (warnings, table, listed) if part] or [["Nothing else."]]
    lines = [line for part in parts for line in ("", *part)]
    return _folded(f"<code>{html.escape(job.title)}</code>: {job.consequence.value}", lines[1:])


def _folded(summary: str, lines: Sequence[str]) -> str:
    return "\n".join(["", f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"])


def _row(change: Change) -> str:
    shown, more = places(change.manifest_paths, MAX_PLACES)
    reaches = "<br>".join([*map(_code, shown), *([f"and {more} more"] if more else [])]) or "nothing"
    after = SECRET_CHANGED if change.is_secret else _value(change, change.new)
    cells = [_code(shortened(change)), _value(change, change.old), after, change.consequence.value]
    return f"| {' | '.join([*cells, reaches])} |"


def _value(change: Change, value: object) -> str:
    if value is None:
        return "unset"
    text = on_one_line(change.old if value is change.old else change.new)
    return _code(text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…")


def _code(text: str) -> str:
    """A code span that no content can leave, inside a table too."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, pad = "`" * (longest + 1), " " if "`" in text or not text.strip() else ""
    clean = "".join(char if char.isprintable() else "�" for char in text)
    return f"{fence}{pad}{clean}{pad}{fence}".replace("|", "\\|")


def _plain(text: str) -> str:
    """Text without markup, except this module's code spans."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _escape(part) for part in parts)


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _escape(text: str) -> str:
    escaped = re.sub(r"([\\`*_\[\]~#@])", r"\\\1", text)
    return html.escape(escaped, quote=False)


def _address(link: str) -> str:
    return re.sub(r"[\s()<>]", lambda match: f"%{ord(match[0]):02X}", link)


def _fitted(head: list[str], table: list[str], blocks: list[str], foot: list[str]) -> str:
    """As much as a comment holds: all lines before any details, details in order while there is room."""
    fixed, rows = [*head, *table[:3]], table[3:]
    room = MAX_LENGTH - _RESERVE - _size([*fixed, *foot])
    kept = _prefix(rows, room)
    parts = [*fixed, *kept]
    if len(kept) < len(rows):
        parts.append(f"\n… and {len(rows) - len(kept)} more jobs.")
    shown = _prefix(blocks, room - _size(kept))
    parts += shown
    if len(shown) < len(blocks):
        parts.append("\nThe rest of the details is too long for a comment; `elastic-infra diff` shows it all.")
    return "\n".join([*parts, *(["", *foot] if foot else [])]) + "\n"


_RESERVE: Final = 512
"""Bytes kept for the two notes about what was cut."""


def _prefix(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= _size([line])
        if room < 0:
            break
        kept.append(line)
    return kept


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
