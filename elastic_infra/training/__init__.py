"""What a training script imports: progress to report, and when to stop.

Nothing here is loaded before it is used; a script that only reports steps imports no torch through it.
"""

from __future__ import annotations

from .progress import Progress

__all__ = ["Progress"]
