"""The names of what is measured, which the tables need without torch."""

from __future__ import annotations

from typing import Final

KILL, GROW, LOSE = EVENTS = ("a worker is killed", "a node joins", "a node is lost")
STOPPED: Final = "a node is lost while a worker is stopped"
"""The stopped worker cannot move, so that its node starts another one."""
LOST_SECONDS: Final = 100.0
"""A job that does not train steadily by then counts as lost."""
SNAPSHOT_STEPS: Final = 4
"""Steps between two snapshots in memory: fewer than by default, where a restart repeats more of them."""
FIRST, SNAPSHOT, OVERLAP, BESIDE, TORCH, TORCH_SYNCED = SAVE_KINDS = (
    "the first snapshots",
    "a snapshot",
    "a snapshot with `overlap`",
    "added by it to forward and backward",
    "`torch.save`",
    "`torch.save` with fsync",
)
DEFAULT: Final = "default"
"""In place of the number of steps between two snapshots: as many as the library takes by itself."""
WINDOW_SECONDS: Final = 40.0
"""The last part of a job, over which its steps are measured."""
MEMORY, COLD, WARM = RESTORE_KINDS = ("from memory", "from disk", "from disk, in the page cache")
