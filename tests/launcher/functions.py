"""Functions that workers run by name."""

from __future__ import annotations

import os
from types import SimpleNamespace


def double(number: int) -> tuple[str, int]:
    """Says its rank and twice the number."""
    return os.environ["RANK"], 2 * number


def fail_on_rank_1(text: str) -> None:
    """Raises on one rank only."""
    if os.environ["RANK"] == "1":
        raise ValueError(text)


def config(**changes: object) -> SimpleNamespace:
    """A launch on one node of two workers, with the fields that every release of torch has."""
    usual = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": 2,
        "run_id": "function",
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "rdzv_configs": {"timeout": 900},
        "max_restarts": 0,
        "start_method": "spawn",
    }
    return SimpleNamespace(**{**usual, **changes})
