"""Event lines and status answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastic_infra.launcher import console, event_log
from elastic_infra.launcher.agent import steps, telemetry
from elastic_infra.launcher.protocol.events import StepsSeen
from elastic_infra.launcher.workers.progress import Slot


def test_an_event_is_one_line(tmp_path: Path) -> None:
    """The common fields come first, in the documented order, then the event's own."""
    path = tmp_path / "events"
    log = event_log.EventLog(str(path), "pod-1", wall=lambda: 0.5, monotonic=lambda: 7.0)
    log.write("worker_exited", generation=1, attempt=0, fields={"rank": 3, "exit_code": -9})

    expected = {
        "time": "1970-01-01T00:00:00.500Z", "monotonic": 7.0, "event": "worker_exited", "node": "pod-1",
        "generation": 1, "attempt": 0, "rank": 3, "exit_code": -9,
    }  # fmt: skip
    assert json.dumps(expected) + "\n" == path.read_text()


def test_events_that_cannot_be_written_are_told_once() -> None:
    """A full disk is one line on stderr and never an error."""
    told: list[bytes] = []
    lines = console.Console(told.append)
    log = event_log.EventLog("/dev/full", "pod-1", lines)
    for _ in range(3):
        log.write("progress", generation=1, attempt=0, fields={})

    lines.run()
    assert lines.close(60)
    assert [b"cannot be written" in line for line in told if line] == [True]


@pytest.mark.parametrize(("age", "pause"), [(0.0, 1.0), (50.0, 5.0), (3600.0, 10.0)])
def test_steps_are_told_more_seldom_as_a_generation_ages(age: float, pause: float) -> None:
    """The first report is told at once, then the pause grows with the age up to ten seconds."""
    pace = telemetry.Pace()
    pace.see(StepsSeen(1, 0, 0), 100.0)
    first = pace.due(100.0)
    pace.see(StepsSeen(1, 1, 1), 100.0 + age)
    second = pace.due(101.0 + age)
    pace.see(StepsSeen(1, 2, 2), 101.0 + age)

    assert first == StepsSeen(1, 0, 0)
    assert second == StepsSeen(1, 1, 1)
    assert pace.due(101.0 + age + 0.9 * pause) is None
    assert pace.due(101.0 + age + 1.1 * pause) == StepsSeen(1, 2, 2)
    assert pace.due(9999.0) is None


def test_a_new_generation_and_what_is_left_are_told_at_once() -> None:
    """The first step after an outage and the last before one are never held back; a new speed alone is not told."""
    pace = telemetry.Pace()
    pace.see(StepsSeen(1, 0, 0), 100.0)
    pace.due(100.0)
    pace.see(StepsSeen(1, 1, 1), 100.1)
    held, left = pace.due(100.1), pace.take(100.2)
    pace.see(StepsSeen(1, 1, 1, per_second=3.0), 100.3)
    speed = pace.take(100.3)
    pace.see(StepsSeen(2, 1, 1), 100.4)

    assert (held, left, speed) == (None, StepsSeen(1, 1, 1), None)
    assert pace.due(100.4) == StepsSeen(2, 1, 1)


def test_the_first_step_of_a_generation() -> None:
    """It is counted back from the first look, which may come steps later, and then stays."""
    watch = steps.Watch()
    slots = [slot(42, 3), slot(43, 4)]
    later = [slot(50, 11), slot(50, 11)]

    seen = [watch.look(2, slots, 1.0), watch.look(2, later, 2.0)]
    assert [look.first for look in seen if look is not None] == [40, 40]


def slot(step: int, reports: int) -> Slot:
    """What a worker has reported that trains without checkpoints."""
    return Slot(step, at=1.0, reports=reports, checkpoint=None, stopped=False, phase_until=None)
