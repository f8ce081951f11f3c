"""What the supervisor tells the world about a testbed, as one small file. Pure but for `read` and `write`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

Phase = Literal["starting", "ready", "failed"]


@dataclass(frozen=True)
class Part:
    """One part that has started."""

    name: str
    pid: int | None
    """Process id inside the testbed; None for a part that is only steps."""
    seconds: float
    """How long it took to become ready."""
    exit: int | None = None
    """The process's end: an exit code, or minus a signal; None while it runs."""


@dataclass(frozen=True)
class State:
    """The state of the whole testbed."""

    phase: Phase
    seconds: float = 0
    """How long the start took."""
    error: str = ""
    parts: tuple[Part, ...] = ()

    def with_part(self, part: Part) -> State:
        """One more part is ready."""
        return replace(self, parts=(*self.parts, part))

    def with_phase(self, phase: Phase, seconds: float, error: str) -> State:
        """The testbed's phase changed."""
        return replace(self, phase=phase, seconds=seconds, error=error)

    def with_end(self, pid: int, status: int) -> State:
        """A part's process ended."""
        parts = (replace(p, exit=status) if p.pid == pid else p for p in self.parts)
        return replace(self, parts=tuple(parts))

    @property
    def is_whole(self) -> bool:
        """Ready, and nothing has ended since."""
        return self.phase == "ready" and all(part.exit is None for part in self.parts)


def path(root: Path) -> Path:
    """Where a testbed's state is."""
    return root / "state.json"


def write(state: State, target: Path) -> None:
    """Replaces the file at once, so that a reader never sees half of it."""
    partial = target.with_suffix(".new")
    partial.write_text(json.dumps(asdict(state)))
    partial.replace(target)


def read(root: Path) -> State | None:
    """The state of the testbed in `root`; None before the supervisor's first word."""
    try:
        fields = json.loads(path(root).read_text())
    except FileNotFoundError:
        return None
    return State(**{**fields, "parts": tuple(Part(**part) for part in fields["parts"])})
