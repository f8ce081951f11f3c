"""The numbers, from cases that can be counted by hand."""

from __future__ import annotations

import pytest

from elastic_infra.timeline.figures import figures, outages
from elastic_infra.timeline.history import history
from elastic_infra.timeline.summary import lines
from tests.timeline.events import record, start, steps, told


def test_goodput_counts_only_steps_that_were_kept() -> None:
    """Steps 0 to 9 in 10 s to 19 s; a failure; from 30 s on again from step 6, past step 9 at 33 s, 19 at 43 s."""
    known = figures(
        history(
            [
                *start(0, "a", 1, 1), steps(10, "a", 1, 0, 0), steps(19, "a", 1, 0, 9),
                record(20, "worker_exited", "a", 1, local_rank=0, exit_code=1, message="boom"),
                record(21, "restart", "a", 2, cause="worker_failed", about="a", message="boom", nodes=1, world_size=1),
                *start(21, "a", 2, 1), steps(30, "a", 2, 6, 6), steps(43, "a", 2, 6, 19),
                record(50, "succeeded", "a", 2),
            ]
        )
    )  # fmt: skip

    assert known.wall_seconds == 50
    assert known.first_step_seconds == 10
    assert known.training_seconds == 9 + 13
    assert known.repeated_seconds == 3
    assert known.training_share == 22 / 50
    assert known.goodput == 19 / 50
    assert (known.steps, known.steps_lost) == (20, 4)
    assert [(each.kind, each.begin, each.seconds, each.steps_lost) for each in known.outages] == [
        ("failure", 19, 11, 4)
    ]
    assert known.restarts == {"failure": 1, "hang": 0, "membership": 0, "preemption": 0}


def test_training_begins_at_the_first_step_and_not_at_the_first_look() -> None:
    """Steps 0 to 9 from 1 s to 10 s; a failure; steps 6 to 16 from 11 s to 21 s, seen at 21 s, past step 9 at 14 s.

    The launcher looks when it has time for it, and its event says how long ago the first step was.
    """
    known = figures(
        history(
            [
                *start(0, "a", 1, 1), record(10, "progress", "a", 1, first=0, highest=9, first_age_seconds=9.0),
                record(10.5, "restart", "a", 2, cause="worker_failed", about="a", nodes=1, world_size=1),
                *start(10.5, "a", 2, 1),
                record(22, "progress", "a", 2, first=6, highest=16, age_seconds=1.0, first_age_seconds=11.0),
            ]
        )
    )  # fmt: skip

    assert (known.first_step_seconds, known.training_seconds, known.repeated_seconds) == (1, 9 + 10, 3)
    assert [(each.begin, each.seconds, each.steps_lost) for each in known.outages] == [(10, 1, 4)]


def test_samples_and_snapshots_are_those_of_the_newest_generation() -> None:
    """A restore takes samples back; within a generation the node that is ahead counts."""
    known = figures(
        history(
            [
                *start(0, "a", 1, 2), *start(0, "b", 1, 2),
                steps(9, "a", 1, 0, 9, samples=90, memory_step=8, checkpoint=5), steps(9, "b", 1, 0, 8, samples=80),
                record(10, "restart", "a", 2, cause="worker_failed", about="a", nodes=1, world_size=1),
                *start(11, "a", 2, 1), steps(12, "a", 2, 6, 6, samples=60),
            ]
        )
    )  # fmt: skip

    assert (known.samples, known.memory_step, known.checkpoint) == (60, 8, 5)
    assert dict(lines(known)) | {"samples": "60", "snapshots": "step 5 on disk, step 8 in memory"} == dict(lines(known))


def test_without_reported_steps_nothing_is_claimed() -> None:
    """A script that reports no steps has no goodput, rather than a wrong one."""
    known = figures(history([*start(0, "a", 1, 1), record(9, "succeeded", "a", 1)]))

    assert (known.goodput, known.training_seconds, known.steps, known.first_step_seconds) == (None, None, None, None)
    assert known.outages == ()


def test_changes_in_a_row_are_one_outage() -> None:
    """A generation that never made a step belongs to the outage, which has the cause of the first."""
    found = history(
        [
            *start(0, "a", 1, 2), steps(1, "a", 1, 0, 0), steps(5, "a", 1, 0, 4),
            record(6, "membership_change", "a", 2, cause="node_lost", about="b", nodes=1, world_size=1),
            *start(6, "a", 2, 1),
            record(8, "membership_change", "a", 3, cause="scale_up", about="b", nodes=2, world_size=2),
            *start(8, "a", 3, 2), steps(12, "a", 3, 5, 5), record(20, "x"),
        ]
    )  # fmt: skip

    (outage,) = outages(found)
    assert (outage.changes, outage.seconds, outage.is_over) == (2, 7, True)
    assert outage.cause is not None
    assert outage.cause.kind == "node_lost"
    assert figures(found).restarts["membership"] == 2


@pytest.mark.parametrize(("end", "expected"), [("failed", [(False, 15)]), ("succeeded", [])])
def test_an_outage_that_does_not_end(end: str, expected: list[tuple[bool, float]]) -> None:
    """It lasts to the last event; at the end of a job that succeeded there is none."""
    last = record(20, end, "a", 2, reason="the job is over")
    found = history([*start(0, "a", 1, 1), steps(5, "a", 1, 0, 0), *start(7, "a", 2, 1), last])

    assert [(each.is_over, each.seconds) for each in outages(found)] == expected


@pytest.mark.parametrize(
    ("event", "cause", "kind"),
    [
        ("restart", "worker_failed", "failure"),
        ("restart", "startup", "failure"),
        ("restart", "hang", "hang"),
        ("membership_change", "hang", "hang"),
        ("membership_change", "leaving", "preemption"),
        ("membership_change", "node_lost", "membership"),
        ("membership_change", "worker_failed", "membership"),
        ("membership_change", "orphaned", "membership"),
        ("membership_change", "of a later version", "membership"),
    ],
)
def test_kinds_of_restarts(event: str, cause: str, kind: str) -> None:
    """A failure is what was charged; that of a group which lost a member is a membership change."""
    found = history([*start(0, "a", 1, 1), record(1, event, "a", 2, cause=cause, about="a"), *start(2, "a", 2, 1)])

    assert [entry.kind for entry in found.generations] == [None, kind]


def test_the_recordings_lose_what_was_in_no_checkpoint() -> None:
    """The recorded script saves every ten steps and at an agreed stop: a planned change loses nothing, a kill < 10."""
    for name in ("faults", "quiet_faults"):
        known = figures(told(name))
        lost = {
            each.cause.kind: each.steps_lost for each in known.outages if each.cause is not None and each.changes == 1
        }

        assert all(number == 0 for cause, number in lost.items() if cause in {"scale_up", "leaving"})
        assert all(number <= 11 for number in lost.values())
        assert known.goodput is not None
        assert 0 < known.goodput < 1
