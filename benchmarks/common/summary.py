"""The page of all results: of each benchmark's page the title, how it was measured, and the main table. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

MAIN: Final = {"rendezvous/RESULTS.md": "Beside torch's own"}
"""By a page's path below ``benchmarks``: the heading above its main table. It is the first table otherwise."""
NO_FIGURES: Final = ("| law |", "| scenario |")
"""Heads of tables that say what held, which the page has: only how it was looked for is told here."""
HEAD: Final = """\
# Results

The main table of each benchmark, with the machine, the versions and the command as far as its page has them. The pages
have all figures and say what they mean; `python -m tools.pages --write` makes this one of them.
[Benchmarks](../docs/benchmarks.md) says what there is and how it is run."""


def document(pages: Mapping[str, str]) -> str:
    """The page as Markdown.

    Args:
        pages: text of each benchmark's page, by its path below ``benchmarks``.
    """
    return "\n\n".join([HEAD, *(part for path, text in pages.items() for part in _section(path, text))]) + "\n"


def _section(path: str, text: str) -> Iterator[str]:
    title, *blocks = re.split(r"\n\n+", text.strip())
    yield f"## [{title.removeprefix('# ')}]({path})"
    yield _facts(blocks)
    below = blocks[blocks.index(f"## {MAIN[path]}") :] if path in MAIN else blocks
    tables = [block for block in below if block.startswith("|")]
    if tables and not tables[0].startswith(NO_FIGURES):
        yield tables[0]


def _facts(blocks: list[str]) -> str:
    """How it was measured: a list, a sentence, or the command with what it said of its run."""
    for number, block in enumerate(blocks):
        if block.startswith("- "):
            return block
        if found := re.match(r"Measured .*?`[^`]+`", block, re.DOTALL):
            return f"- {found[0]}"
        if block.startswith("    "):
            said = " ".join(blocks[number + 1].split())
            return f"- {said}\n- `{block.strip()}`"
    message = f"a page does not say how it was measured: {blocks[:1]}"
    raise ValueError(message)
