"""Functions that workers run by name."""

from __future__ import annotations

import os


def double(number: int) -> tuple[str, int]:
    """Says its rank and twice the number."""
    return os.environ["RANK"], 2 * number


def fail_on_rank_1(text: str) -> None:
    """Raises on one rank only."""
    if os.environ["RANK"] == "1":
        raise ValueError(text)
