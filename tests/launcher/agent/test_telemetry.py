"""How often steps are told: every second at first, ten times less often later."""

from __future__ import annotations

from dataclasses import replace

from elastic_infra.launcher.agent.telemetry import PROGRESS_SECONDS, Pace
from elastic_infra.launcher.protocol.events import StepsSeen

SHORTEST, LONGEST = PROGRESS_SECONDS
FIRST = StepsSeen(1, 0, 0, 2.0)


def test_the_first_step_is_told_at_once() -> None:
    """It ends an outage."""
    pace = Pace()
    pace.see(FIRST, 50.0)

    assert pace.due(50.0) == FIRST
    assert pace.due(50.0) is None


def test_steps_between_are_told_when_it_is_time() -> None:
    """The newest of them; a change of speed alone is nothing new."""
    pace = Pace()
    pace.see(FIRST, 0.0)
    pace.due(0.0)
    pace.see(replace(FIRST, highest=1), 0.2)
    pace.see(replace(FIRST, highest=2), 0.4)

    assert pace.due(SHORTEST - 0.1) is None
    assert pace.due(SHORTEST) == replace(FIRST, highest=2)
    pace.see(replace(FIRST, highest=2, per_second=9.0), SHORTEST + 1)
    assert pace.due(100.0) is None


def test_an_old_generation_is_told_of_seldom() -> None:
    """A job of days does not fill its log; a new generation is young again."""
    pace = Pace()
    pace.see(FIRST, 0.0)
    pace.due(0.0)
    pace.see(replace(FIRST, highest=5000), 5000.0)
    pace.due(5000.0)
    pace.see(replace(FIRST, highest=5001), 5001.0)

    assert pace.due(5000.0 + LONGEST - 0.1) is None
    assert pace.due(5000.0 + LONGEST) is not None
    pace.see(replace(FIRST, generation=2), 5012.0)
    assert pace.due(5012.0) is not None


def test_what_is_untold_can_be_taken_early() -> None:
    """Before an event that ends the generation."""
    pace = Pace()
    pace.see(FIRST, 0.0)
    pace.due(0.0)
    pace.see(replace(FIRST, highest=1), 0.1)

    assert pace.take(0.1) == replace(FIRST, highest=1)
    assert pace.take(0.1) is None
