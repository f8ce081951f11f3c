"""Expected files: compared exactly, written only on request, never by themselves."""

from __future__ import annotations

import difflib
import itertools
import os
from pathlib import Path

REWRITE = "ELASTIC_INFRA_REWRITE_GOLDEN"
MOST_LINES = 40
"""Lines of a difference that a failure shows."""


def assert_golden(file: Path, text: str, advice: str = "") -> None:
    """The text is the file's; `make golden` writes it anew, and then the difference is for people to judge.

    Args:
        advice: what follows from a difference, for the reader.
    """
    if os.environ.get(REWRITE) == "1":
        file.write_text(text, "utf-8")
    assert file.exists(), f"{file} is missing: look at what `make golden` writes, and commit it"
    before = file.read_text("utf-8")
    is_same = before == text
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "expected", "found", lineterm="", n=1)
    shown = "" if is_same else "\n".join(itertools.islice(lines, MOST_LINES))
    assert is_same, f"{file} differs: look at what `make golden` writes, and commit it if right. {advice}\n{shown}"
