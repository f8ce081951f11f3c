"""What the protocol hears of the workers' slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from elastic_infra.launcher.agent import hang_detection, steps
from elastic_infra.launcher.protocol.events import StepsSeen
from elastic_infra.launcher.workers.progress import Slot

EMPTY = Slot(None, 0.0, 0, None, stopped=False, phase_until=None)


def test_first_step_is_told_once_whichever_worker_makes_it() -> None:
    """The earliest of what was seen first counts, reported or not; later steps do not move it."""
    watch = steps.Watch()
    optimized = replace(EMPTY, optimized_at=7.0)
    before = watch.look(1, (EMPTY, EMPTY), 6.0)
    seen = watch.look(1, (optimized, EMPTY), 8.0)
    later = watch.look(1, (optimized, replace(EMPTY, step=3, at=9.0, reports=1)), 10.0)

    assert before is not None
    assert before.stepped_at is None
    assert seen is not None
    assert (seen.stepped_at, seen.highest) == (7.0, None)
    assert later is not None
    assert (later.stepped_at, later.highest) == (7.0, 3)


def test_a_late_look_tells_when_the_first_step_was_made() -> None:
    """The workers note that moment themselves; with a library that does not, it is that of the newest step."""
    slots = [replace(EMPTY, step=9, at=9.5, reports=8, first_at=at) for at in (6.0, 5.0)]
    seen, older = steps.Watch().look(1, slots, 10.0), steps.Watch().look(1, [replace(slots[0], first_at=None)], 10.0)

    assert seen is not None
    assert (seen.stepped_at, seen.first) == (5.0, 2)
    assert older is not None
    assert older.stepped_at == 9.5


def test_a_failing_worker_is_news() -> None:
    """An exception has left one script: said once, before the worker has ended."""
    watch = steps.Watch()
    failing = replace(EMPTY, failed_at=7.0)
    seen = [watch.look(1, slots, 8.0) for slots in ((EMPTY, EMPTY), (EMPTY, failing), (EMPTY, failing))]

    assert [each.failing if each else None for each in seen] == [False, True, None]


def test_unreported_step_feeds_no_hang_rule() -> None:
    """A worker whose optimizer stepped once and that then says nothing for hours gets no verdict."""
    worker = hang_detection.Worker(replace(EMPTY, optimized_at=1.0), "R", 1.0)
    watch = hang_detection.Watch()
    for now in (1.0, 4.0, 10_000.0, 10_001.0):
        seen = hang_detection.Seen(now, {0: replace(worker, cpu_seconds=now)})
        watch, verdict = hang_detection.decide(watch, seen, 600.0)
        assert verdict is None


def test_slowest_worker_is_named_once_all_report() -> None:
    """The one that a hang waits for; a worker that reports nothing may be anywhere."""
    at = [replace(EMPTY, step=step, reports=1) for step in (7, 5, 6)]
    all_report, one_does_not = steps.Watch().look(1, at, 1.0), steps.Watch().look(1, (*at, EMPTY), 1.0)

    assert all_report is not None
    assert (all_report.lowest, all_report.slowest) == (5, 1)
    assert one_does_not is not None
    assert (one_does_not.lowest, one_does_not.slowest) == (None, None)


def looks(watch: steps.Watch, reports: Sequence[float], until: float, every: float = 0.25) -> StepsSeen | None:
    """The facts after looks at a worker that reports its steps, from step 1 on, at these times."""
    seen = None
    for number in range(1, int(until / every) + 1):
        made = [at for at in reports if at <= number * every]
        slot = replace(EMPTY, step=len(made), at=made[-1], reports=len(made)) if made else EMPTY
        seen = watch.look(1, (slot,), number * every) or seen
    return seen


@pytest.mark.parametrize("seconds", [0.04, 0.5, 1.0, 10.0, 600.0])
def test_the_speed_of_long_steps_is_known_between_them(seconds: float) -> None:
    """At any moment of the next step, not in the moment after a step alone."""
    reports = [seconds * number for number in range(1, 30)]
    for part in (0.05, 0.5, 0.95):
        seen = looks(steps.Watch(), reports, reports[-1] + max(0.25, part * seconds), max(0.25, seconds / 20))

        assert seen is not None
        assert seen.per_second == pytest.approx(1 / seconds, rel=0.15)
        assert seen.step_seconds == pytest.approx(seconds, rel=0.15)


def test_a_worker_that_stops_stepping_has_no_speed() -> None:
    """After the time of three steps; what a step takes stays known."""
    seen = looks(steps.Watch(), [2.0, 4.0, 6.0], until=30.0)

    assert seen is not None
    assert (seen.per_second, seen.step_seconds) == (0.0, 2.0)


def test_what_a_step_takes_is_the_longest_but_one_in_a_hundred() -> None:
    """An evaluation once in a hundred steps is none; a tenth of the steps is. The next generation knows it too."""
    times = [float(number) for number in range(1, 150)]
    rare, often = ([at + pause * 30 for at, pause in zip(times, pauses, strict=True)]
                   for pauses in ([int(at > 75) for at in times], [int(at // 10) for at in times]))  # fmt: skip
    watch = steps.Watch()
    looks(watch, rare, rare[-1] + 1)
    later = steps.Watch(watch.durations).look(2, (EMPTY,), 1000.0)
    seen = looks(steps.Watch(), often, often[-1] + 1)

    assert later is not None
    assert later.step_seconds == pytest.approx(1.0)
    assert seen is not None
    assert seen.step_seconds == pytest.approx(31.0)
