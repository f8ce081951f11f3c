"""The layout that all parts of the picture share: the history on its scale, the measures, and which words fit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elastic_infra.timeline import scale
from elastic_infra.timeline.figures import Figures
from elastic_infra.timeline.history import History

WIDTH: Final = 1000.0
LEFT: Final = 118.0
RIGHT: Final = 16.0
LETTER: Final = 6.3
"""Average width of a letter at 12 px, which decides whether a word fits."""

Part = tuple[tuple[str, ...], float]
"""Markup, and the height at which it ends."""


@dataclass(frozen=True)
class Layout:
    """The history, its scale and the measures for all parts of the picture."""

    history: History
    figures: Figures
    scale: scale.Scale

    def since(self, moment: float) -> str:
        """A moment as the time since the begin."""
        return scale.clock(moment - self.history.begin)


def fits(text: str, width: float) -> bool:
    """Whether a text of 12 px fits into a width."""
    return len(text) * LETTER + 10 <= width


def fit(text: str, width: float) -> str:
    """The text, cut to the width."""
    most = max(1, int(width / LETTER))
    return text if len(text) <= most else text[: most - 1] + "…"
