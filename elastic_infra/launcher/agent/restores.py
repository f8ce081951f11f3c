"""From where the workers of a generation went on, and how many steps that took back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..workers.progress import SOURCES, Slot


@dataclass(frozen=True)
class Restore:
    """How the workers of this node began a generation."""

    step: int
    """Number of steps that were done."""
    source: str
    """Where the state came from, as in ``workers.progress.SOURCES``; of several workers the farthest source."""
    steps_lost: int
    """Repeated steps: those that workers of this node had reported before."""


class Watch:
    """Looks for the moment at which all workers of a generation have their state."""

    def __init__(self) -> None:
        self._told = 0
        """The newest generation whose restore was found."""
        self._highest: int | None = None
        """The highest step that was reported since the last restore."""

    def look(self, generation: int, slots: Sequence[Slot]) -> Restore | None:
        """The restore of a generation, once: when all of its workers have reported theirs."""
        said = [slot.restored for slot in slots if slot.restored is not None]
        found = None
        if generation > self._told and said and len(said) == len(slots):
            step = min(step for step, _ in said)
            source = max((source for _, source in said), key=SOURCES.index)
            found = Restore(step, source, max(0, (self._highest or 0) - step))
            self._told, self._highest = generation, None
        reported = [slot.step for slot in slots if slot.step is not None]
        self._highest = max((step for step in (self._highest, *reported) if step is not None), default=None)
        return found
