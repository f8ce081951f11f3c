"""Snapshots by time are those of rank 0's clock, at steps that all ranks know."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.training import Elastic, ElasticState, Snapshots, schedule, transfer
from elastic_infra.training.places import Disk
from elastic_infra.training.snapshots import Folder

SHARE = 0.01


def looks(step_seconds: float, durable_seconds: float, steps: int) -> list[schedule.Plan]:
    """Every plan of a generation with steps of this time; a plan's look is at the step of the plan before it."""
    plans, durable_at, plan = [], 0.0, schedule.Plan(1)
    while (step := plan.look_at) <= steps:
        until = durable_at + durable_seconds - step * step_seconds
        plan = schedule.plan(schedule.Seen(step, step, step_seconds, 0.0, until), durable_seconds, SHARE, SHARE)
        durable_at = step * step_seconds if plan.durable else durable_at
        plans.append(plan)
    return plans


@given(st.floats(0.001, 100.0), st.floats(1.0, 3600.0))
def test_a_durable_snapshot_comes_with_the_first_step_after_its_time(
    step_seconds: float, durable_seconds: float
) -> None:
    """At a steady speed; a handful of looks is enough for each."""
    steps = int(3 * durable_seconds / step_seconds) + 3
    plans = looks(step_seconds, durable_seconds, steps)
    at = [step for step, plan in zip([1, *(plan.look_at for plan in plans)], plans, strict=False) if plan.durable]

    assert at
    waits = [after - before for before, after in zip([0, *at], at, strict=False)]
    assert all(durable_seconds <= wait * step_seconds + 1e-6 for wait in waits)
    assert all((wait - 2) * step_seconds <= durable_seconds for wait in waits)
    assert len(plans) <= (len(at) + 1) * (2 * steps.bit_length() + durable_seconds / schedule.LONGEST_SECONDS + 4)


@given(st.floats(0.0, 10.0), st.floats(0.001, 10.0))
def test_copies_to_memory_cost_their_share_at_most(copy_seconds: float, step_seconds: float) -> None:
    """The interval is the shortest that does, one step where copies cost next to nothing."""
    seen = schedule.Seen(5, 5, step_seconds, copy_seconds, 600.0)
    interval = schedule.plan(seen, 600.0, SHARE, SHARE).memory_steps

    assert copy_seconds <= SHARE * interval * step_seconds * (1 + 1e-9)
    assert interval == 1 or copy_seconds > SHARE * (interval - 1) * step_seconds * (1 - 1e-9)


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(0.001, 10.0))
def test_sending_copies_takes_its_share_of_a_processor_at_most(
    copy_seconds: float, sending_seconds: float, step_seconds: float
) -> None:
    """Threads do it beside the training, which has one processor less meanwhile; the longer interval counts."""

    def interval(copy_seconds: float, sending_seconds: float) -> int:
        seen = schedule.Seen(5, 5, step_seconds, copy_seconds, 600.0, sending_seconds)
        return schedule.plan(seen, 600.0, SHARE, 2 * SHARE).memory_steps

    assert sending_seconds <= 2 * SHARE * interval(copy_seconds, sending_seconds) * step_seconds * (1 + 1e-9)
    assert interval(copy_seconds, sending_seconds) == max(interval(copy_seconds, 0), interval(0, sending_seconds))


def test_a_rank_saves_at_the_step_that_rank_0_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This rank's clock says nothing of a durable snapshot, and it is saved with the others' parts all the same."""
    asked: list[int] = []

    def first_says(mine: schedule.Plan) -> schedule.Plan:
        assert not mine.durable
        asked.append(mine.look_at - 1)
        return schedule.Plan(4, memory_steps=2, durable=len(asked) == 2)

    monkeypatch.setattr(transfer, "said_by_first", first_says)
    elastic = Elastic(ElasticState(tmp_path, model=torch.nn.Linear(1, 1)), snapshots=Snapshots())
    elastic.run(lambda _: None, until=4)

    assert asked[:1] == [1]
    assert Folder(Disk(tmp_path), pytest.fail).steps() == (4,)


def test_intervals_in_steps_need_no_word_of_rank_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks count the same steps."""
    monkeypatch.setattr(transfer, "said_by_first", pytest.fail)
    snapshots = Snapshots(memory_steps=1, durable_steps=2)
    Elastic(ElasticState(tmp_path, model=torch.nn.Linear(1, 1)), snapshots=snapshots).run(lambda _: None, until=3)

    assert Folder(Disk(tmp_path), pytest.fail).steps() == (2,)
