"""Whether an agent that is dead or stuck gets a successor, or the launcher ends. Pure.

The cluster recreates a pod that ends, which takes seconds and a place in a queue; a new agent takes neither, and the
pod keeps its GPUs. An agent that fails repeatedly has a lasting cause: then a new pod is the better try.
"""

from __future__ import annotations

import dataclasses
from typing import Final

MOST: Final = 3
"""The most agents that are replaced within ``WINDOW_SECONDS``."""
WINDOW_SECONDS: Final = 600.0


@dataclasses.dataclass(frozen=True)
class Replacements:
    """When agents of this launch were replaced (CLOCK_MONOTONIC), without those before the window."""

    times: tuple[float, ...] = ()

    def next(self, now: float) -> Replacements | None:
        """The record with one more replacement, or None where there have been too many."""
        recent = tuple(at for at in self.times if now - at < WINDOW_SECONDS)
        return Replacements((*recent, now)) if len(recent) < MOST else None
