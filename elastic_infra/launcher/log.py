"""Log lines on stderr, each with the program's name in front. ``event_log`` writes events for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Literal, get_args

PROGRAM: Final = "elasticrun"

Level = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS: Final[tuple[Level, ...]] = get_args(Level)


def say(line: str) -> None:
    """Write one line at once, whatever the log level."""
    print(f"{PROGRAM}: {line}", file=sys.stderr, flush=True)


class Log:
    """Passes on the lines at or above the user's log level."""

    def __init__(self, lowest: str, write: Callable[[str], object] = say) -> None:
        """A log of one process.

        Args:
            lowest: the name of the lowest level to write, in either case; an unknown name means WARNING, which is
                the default of torch's ``LOGLEVEL`` as well.
            write: takes a line without the program's name; ``say`` by default.
        """
        name = lowest.lower()
        self._lowest: Final[Level] = name if name in _LEVELS else "warning"
        self._write = write

    def shows(self, level: Level) -> bool:
        """Whether a line of this level would be written."""
        return _LEVELS.index(level) >= _LEVELS.index(self._lowest)

    def tell(self, level: Level, line: str) -> None:
        """Write a line of this level; an empty line is dropped."""
        if line and self.shows(level):
            self._write(line)
