"""What every part of the picture needs: the history on its scale, the picture's measures, and which words fit. Pure."""

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
"""Width of a letter of 12 px, on average: what decides whether a word fits."""

Part = tuple[tuple[str, ...], float]
"""Markup, and where it ends."""


@dataclass(frozen=True)
class Layout:
    """What every part needs."""

    history: History
    figures: Figures
    scale: scale.Scale

    def since(self, moment: float) -> str:
        """A moment as its distance from the begin."""
        return scale.clock(moment - self.history.begin)


def fits(text: str, width: float) -> bool:
    """Whether a text of 12 px has room in a width."""
    return len(text) * LETTER + 10 <= width


def fit(text: str, width: float) -> str:
    """The text, cut where it has no room."""
    most = max(1, int(width / LETTER))
    return text if len(text) <= most else text[: most - 1] + "…"
