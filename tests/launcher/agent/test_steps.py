"""What the protocol hears of the workers' slots."""

from __future__ import annotations

from dataclasses import replace

from elastic_infra.launcher.agent import hang_detection, steps
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
