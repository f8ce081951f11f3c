"""Short stack traces: of the program behind a resource only the nearest lines are stored."""

from __future__ import annotations

import sys
import traceback

import pytest

from elastic_infra.traces import FRAMES, short_traces


def _frames(depth: int) -> int:
    """The frames that Pulumi would see behind so many calls."""
    return _frames(depth - 1) if depth else len(traceback.extract_stack())


def test_only_the_nearest_frames_are_seen_meanwhile() -> None:
    """As many as there are constants for, and all of them before and after, whatever ends the block."""
    with short_traces():
        assert _frames(30) == FRAMES
    with pytest.raises(ZeroDivisionError), short_traces():
        _ = 1 / 0

    assert not hasattr(sys, "tracebacklimit")
    assert _frames(30) > 30


@pytest.mark.parametrize(("limit", "seen"), [(3, 3), (100, FRAMES)])
def test_a_limit_of_the_program_stays(monkeypatch: pytest.MonkeyPatch, limit: int, seen: int) -> None:
    """A shorter one holds meanwhile as well, and each is there again afterwards."""
    monkeypatch.setattr(sys, "tracebacklimit", limit, raising=False)
    with short_traces():
        assert _frames(30) == seen

    assert sys.tracebacklimit == limit
