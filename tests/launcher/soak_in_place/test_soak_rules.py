"""The laws of the soak in place see what breaks them, and its plan strikes as it says."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.launcher.soak_in_place import exact, plan, verdict
from tests.launcher.soak_in_place.soak import Soak

Line = dict[str, object]


@functools.cache
def expected() -> tuple[verdict.Undisturbed, ...]:
    """Three steps of one worker; not at import, since an optimizer imports all of torch's compiler."""
    return tuple(verdict.Undisturbed(samples, mark) for samples, mark in exact.undisturbed(3))


def journal(*, drop: Callable[[Line], bool] = lambda _: False, **changed: float) -> list[Line]:
    """Two ranks that do three steps, the second of which breaks once and is repeated without rank 1."""

    def lines() -> Iterator[Line]:
        for step, generation, ranks in ((1, 1, 2), (2, 1, 2), (2, 2, 1), (3, 2, 1)):
            samples = list(expected()[step - 1].samples)
            for rank in range(ranks):
                place = {"step": step, "generation": generation, "rank": rank, "pid": rank}
                yield {"event": "begun", **place, "seen": samples[rank::ranks]}
                if (step, generation) != (2, 1):
                    mark = expected()[step - 1].mark + changed.get(f"rank_{rank}", 0)
                    yield {"event": "step", **place, "world": ranks, "mark": mark, "digest": repr(mark)}

    return [line for line in lines() if not drop(line)]


def test_a_step_that_is_repeated_breaks_no_law() -> None:
    """It counts once, in the generation that tried it last."""
    assert verdict.exactly_once(journal(), expected()) == []
    assert verdict.equal_ranks(journal()) == []
    assert verdict.undisturbed(journal(), expected()) == []


def test_a_sample_that_nobody_trained_on_is_seen() -> None:
    """A rank's share of a step that counts is missing, or the step itself is."""
    without_rank_1 = journal(drop=lambda line: (line["step"], line["rank"]) == (1, 1))
    without_step_3 = journal(drop=lambda line: line["step"] == 3)

    assert [line[:7] for line in verdict.exactly_once(without_rank_1, expected())] == ["step 1:"]
    assert [line[:7] for line in verdict.exactly_once(without_step_3, expected())] == ["step 3:"]


def test_weights_of_ranks_that_differ_in_a_bit_are_seen() -> None:
    """Where the sums are the same to many digits as well."""
    assert len(verdict.equal_ranks(journal(rank_1=1e-15))) == 1
    assert verdict.undisturbed(journal(rank_1=1e-15), expected()) == []


def test_weights_that_differ_in_a_bit_from_those_of_a_run_without_faults_are_seen() -> None:
    """One weight that is the next number, or a step that the other run does not have."""
    model = exact.Linear()
    optimizer = exact.optimizer(model)
    model(torch.ones(1, exact.PARTS * exact.WIDTH, dtype=torch.float64)).sum().backward()
    optimizer.step()
    before, weight = exact.digest(model, optimizer), model.parts[2].weight
    weight.data[0, 1] = torch.nextafter(weight.data[0, 1], torch.full((), torch.inf, dtype=torch.float64))

    assert exact.digest(model, optimizer) != before
    assert verdict.identical(journal(), journal()) == []
    assert len(verdict.identical(journal(rank_1=1e-15), journal())) == 1
    assert len(verdict.identical(journal(), journal(drop=lambda line: line["step"] == 3))) == 1


def test_a_step_with_too_few_workers_is_seen() -> None:
    """Two steps with one worker of a job that wants two."""
    assert [line[:6] for line in verdict.of_size(journal(), 2)] == ["step 2", "step 3"]


@pytest.mark.parametrize("sample", range(0, exact.SAMPLES, 7))
def test_one_sample_changes_the_weights_by_more_than_rounding(sample: int) -> None:
    """The loss is linear in the weights, so that no later step makes up for a sample that is lost or counted twice."""
    model = exact.Linear()
    optimizer, before = exact.optimizer(model), exact.mark(model)
    inputs, _ = exact.samples().tensors
    (model(inputs[[sample]]).sum() / exact.GLOBAL_BATCH).backward()
    optimizer.step()

    assert abs(exact.mark(model) - before) > 1000 * verdict.TOLERANCE


def readings(**growth: int) -> list[Line]:
    """What a process holds in thirty groups of two sizes, with so much more each time."""
    held = {"descriptors": 20, "threads": 5, "kib": 90_000}
    return [
        {"pid": 7, "world": 2 + number % 2, **{kind: held[kind] + growth.get(kind, 0) * number for kind in held}}
        for number in range(30)
    ]


def test_what_a_process_holds_as_rank_0_is_no_growth() -> None:
    """It has become that after a while, and holds more from then on."""
    lines: list[Line] = [{**line, "descriptors": 20 + 14 * (number > 13)} for number, line in enumerate(readings())]

    assert [life.growth for life in verdict.lives(lines)] == [[], []]


@pytest.mark.parametrize(("growth", "seen"), [({}, 0), ({"descriptors": 1}, 2), ({"threads": 1}, 2), ({"kib": 900}, 2)])
def test_what_grows_with_each_generation_is_seen(growth: dict[str, int], seen: int) -> None:
    """One descriptor, one thread or a megabyte each, in groups of either size."""
    lives = verdict.lives(readings(**growth))

    assert [life.world for life in lives] == [2, 3]
    assert sum(len(life.growth) for life in lives) == seen


def test_a_process_that_ends_without_a_fault_was_replaced() -> None:
    """Neither struck nor there at the end."""
    lines = [{"event": "step", "pid": pid} for pid in (1, 2, 3)] + [{"event": "end", "pid": 1}]

    assert verdict.replaced(lines, frozenset({2})) == [3]


def test_a_generation_of_new_processes_alone_is_a_restart() -> None:
    """One survivor makes it a move."""
    members = {1: (1, 2), 2: (2, 3), 3: (4, 5)}
    lines = [
        {"event": "step", "generation": generation, "pid": pid} for generation, pids in members.items() for pid in pids
    ]

    assert verdict.changes(lines) == verdict.Changes(moves=1, restarts=1)


def test_a_plan_is_the_same_for_a_seed_and_strikes_at_every_point() -> None:
    """Workers more often than nodes, all points, the eldest now and then, two at once of different kinds."""
    faults = plan.draw(3, 200)
    kinds = Counter(fault.kind for fault in faults)

    assert faults == plan.draw(3, 200)
    assert {(fault.kind, fault.point) for fault in faults} == set(itertools.product(plan.KINDS, plan.POINTS))
    assert kinds["kill_worker"] > kinds["kill_node"] > 40
    assert sum(fault.eldest for fault in faults) == 5
    for before, fault in itertools.pairwise(faults):
        if fault.after is not None:
            assert (before.after, before.eldest) == (None, False)
            assert fault.kind != before.kind


def test_a_later_process_may_have_the_pid_of_one_that_was_struck(tmp_path: Path) -> None:
    """It is a member with its first step, and its life begins then; a victim is none although its steps are read."""
    soak = Soak(tmp_path, (), 1, 1, lambda _: None)
    me = os.getpid()
    for at, struck, members in ((1.0, 2.0, []), (3.0, 2.0, [me]), (4.0, 5.0, [])):
        line = {"event": "step", "time": at, "pid": me, "rank": 0, "world": 1, "generation": 1, "step": int(at)}
        with (tmp_path / "journal").open("a") as journal:
            journal.write(json.dumps(line) + "\n")
        soak.struck[me] = struck
        soak._tick(finishing=False)

        assert soak._members() == members
    assert soak._since[me] == 3.0
