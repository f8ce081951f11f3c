"""How saving goes, from what the workers report: the newest snapshot in memory, and checkpoints and failed ones."""

from __future__ import annotations

from collections.abc import Sequence

from ..workers.progress import Slot


class Watch:
    """Adds the failures of all generations up, since the workers of each restart count from zero."""

    def __init__(self) -> None:
        self.failed = 0
        """Checkpoints that could not be saved. Where a volume is full every worker fails to save the same checkpoint,
        so the worker with the most failures counts, and not their sum."""
        self.seconds: float | None = None
        """Seconds that the newest checkpoint took; None before one is reported. The slowest worker's."""
        self.memory_step: int | None = None
        """The newest step of which a snapshot is in the node's memory; None before one is reported."""
        self._last = 0

    def look(self, slots: Sequence[Slot]) -> None:
        """Take down what the workers say."""
        failed = max((slot.failed_saves for slot in slots), default=0)
        self.failed += failed - self._last if failed >= self._last else failed
        self._last = failed
        took = [slot.save_seconds for slot in slots if slot.save_seconds is not None]
        self.seconds = max(took, default=self.seconds)
        self.memory_step = max((each.snapshot for each in slots if each.snapshot is not None), default=self.memory_step)
