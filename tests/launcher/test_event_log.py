"""Event lines: one whole object a line, beside other writers, and never a failed launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastic_infra.launcher.event_log import EventLog, utc


def test_a_line_is_its_head_and_the_events_own_fields(tmp_path: Path) -> None:
    """Appended: supervisor and agent share a file."""
    path = tmp_path / "events"
    for node in ("a", "ü"):
        log = EventLog(str(path), node, wall=lambda: 12.5, monotonic=lambda: 7.25)
        log.write("progress", generation=2, attempt=1, fields={"highest": 3})
    first, second = (json.loads(line) for line in path.read_text("utf-8").splitlines())

    assert first == {
        "time": "1970-01-01T00:00:12.500Z",
        "monotonic": 7.25,
        "event": "progress",
        "node": "a",
        "generation": 2,
        "attempt": 1,
        "highest": 3,
    }
    assert second["node"] == "ü"


def test_without_a_target_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of the command line."""
    monkeypatch.chdir(tmp_path)
    EventLog("", "a").write("restart", generation=1, attempt=0, fields={})

    assert list(tmp_path.iterdir()) == []


def test_a_dash_is_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """For logs that a collector reads."""
    EventLog("-", "a").write("restart", generation=1, attempt=0, fields={})

    assert json.loads(capfd.readouterr().err)["event"] == "restart"


def test_what_cannot_be_written_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A full disk fails no launch and fills no log."""
    log = EventLog(str(tmp_path / "gone" / "events"), "a")
    for _ in range(3):
        log.write("restart", generation=1, attempt=0, fields={})

    assert capfd.readouterr().err.count("events cannot be written: No such file") == 1


@pytest.mark.parametrize(("wall", "text"), [(0.0, "1970-01-01T00:00:00.000Z"), (1.0015, "1970-01-01T00:00:01.001Z")])
def test_time_is_utc_with_milliseconds(wall: float, text: str) -> None:
    """The machine's time zone does not matter."""
    assert utc(wall) == text
