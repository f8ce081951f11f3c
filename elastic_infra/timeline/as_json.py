"""History and figures as JSON values. Pure; the shape is documented in ``docs/timeline.md``.

Moments are seconds since the history's ``begin``, which is UTC; an unknown number is null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from elastic_infra.launcher.event_log import utc
from elastic_infra.timeline.figures import Figures
from elastic_infra.timeline.history import History

DIGITS: Final = 3
"""Decimal places of seconds and shares: the time of an event has no more."""
MOMENTS: Final = frozenset({"at", "begin", "end", "first_at", "last_at", "ahead_at"})
"""Fields that hold Unix seconds."""
OURS: Final = frozenset({"life"})
"""Fields that only the fold of the events needs, and that are left out."""


def as_json(history: History, figures: Figures) -> Mapping[str, Any]:
    """The history and the figures of the picture, as JSON values."""
    begin = history.begin

    def plain(value: Any) -> Any:  # noqa: ANN401 - JSON values
        if dataclasses.is_dataclass(value):
            fields = (field.name for field in dataclasses.fields(value) if field.name not in OURS)
            return {name: since(name, getattr(value, name)) for name in fields}
        if isinstance(value, Mapping):
            return {key: plain(each) for key, each in value.items()}
        if isinstance(value, tuple):
            return [plain(each) for each in value]
        return round(value, DIGITS) if isinstance(value, float) else value

    def since(name: str, value: Any) -> Any:  # noqa: ANN401 - JSON values
        return plain(value - begin if name in MOMENTS and value is not None else value)

    return {
        "begin": utc(begin),
        "seconds": plain(history.seconds),
        "outcome": history.outcome,
        "reason": history.reason,
        "run_id": history.run_id,
        "script": history.script,
        "figures": plain(figures),
        "generations": plain(history.generations),
        "nodes": [
            {"node": lane.node, "phases": plain(lane.intervals), "marks": plain(lane.marks)} for lane in history.lanes
        ],
        "marks": plain(history.marks),
    }
