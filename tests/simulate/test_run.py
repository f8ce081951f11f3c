"""One life of a job: the time adds up, each change costs what its arm says, and chance is the seed's alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_infra.simulate import arms, run, study
from elastic_infra.simulate.measured import IN_PLACE, RESTARTS, TORCHRUN
from elastic_infra.simulate.run import simulate
from elastic_infra.simulate.scenario import DAY, HOUR, Change, Costs, Kind, Rates, Saving, Scenario
from tests.simulate.cases import QUIET, restarting, scenario

COSTS = Costs(
    script_start=10.0, load=5.0, step=4.0, checkpoint=Saving(100.0, 0.0), snapshot=Saving(20.0, 0.0), state=20e9
)
"""Saves are free, so that times can be added by hand."""
THEIRS, OURS, STAYING = (each.stateless for each in (TORCHRUN, RESTARTS, IN_PLACE))
MORE = IN_PLACE.per_gigabyte
KINDS: tuple[Kind, ...] = ("loss", "preemption", "crash", "return")

changes = st.builds(Change, st.floats(0, 2 * DAY, allow_subnormal=False), st.sampled_from(KINDS), st.integers(1, 8))
scenarios = st.builds(
    Scenario,
    st.tuples(st.integers(1, 12), st.integers(0, 12)).map(lambda two: (two[0], two[0] + two[1])),
    st.floats(0.1, 48),
    unit=st.just(1),
    efficiency=st.floats(0.5, 1),
    rates=st.builds(Rates, *[st.floats(0, 20_000)] * 3, st.floats(0.1, DAY)),
    costs=st.builds(
        Costs,
        st.floats(0, 600),
        st.floats(0, 600),
        st.floats(0.1, 60),
        st.builds(Saving, st.floats(1, DAY), st.floats(0, 600)),
        st.none() | st.builds(Saving, st.floats(1, 3600), st.floats(0, 60)),
        st.floats(0, 1e12),
        st.none() | st.floats(1e6, 1e12),
    ),
    trace=st.lists(changes, max_size=8).map(lambda each: tuple(sorted(each, key=lambda change: change.at))),
    returns=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(scenarios, st.sampled_from(arms.NAMES), st.integers(0, 3))
def test_the_time_adds_up(found: Scenario, name: arms.Name, seed: int) -> None:
    """Each second is spent once, and goodput is a share.

    No activity has less than none, and the kept training takes no longer than the fewest nodes need.
    """
    lived = simulate(found, arms.arm(name, found), str(seed))
    seconds = sum(lived.spent.values())

    assert all(value >= -1e-6 for value in lived.spent.values())
    assert 0 <= lived.goodput <= 1
    assert sum(lived.share(activity) for activity in run.ACTIVITIES) == pytest.approx(1 if seconds else 0)
    assert lived.node_hours <= found.nodes[1] * seconds / HOUR * (1 + 1e-9)
    if lived.finished:
        assert lived.hours >= found.hours * (1 - 1e-9)
        assert lived.spent["training"] <= found.work / found.speed(found.nodes[0]) * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(scenarios, st.sampled_from(arms.NAMES))
def test_the_same_seed_gives_the_same_life(found: Scenario, name: arms.Name) -> None:
    """To the last bit."""
    arm = arms.arm(name, found)

    assert simulate(found, arm, "7") == simulate(found, arm, "7")


@pytest.mark.parametrize("name", arms.NAMES)
@pytest.mark.parametrize("pause", [0.0, 7.0])
def test_without_changes_only_start_and_pauses_are_lost(name: arms.Name, pause: float) -> None:
    """The last save is the one before the last stretch: at the end there is nothing left to save for."""
    saving = Saving(600.0, pause)
    found = scenario(hours=1.0, costs=replace(COSTS, checkpoint=saving, snapshot=saving))
    arm = arms.arm(name, found)
    lived = simulate(found, arm, "0")
    start = (THEIRS if name == "torchrun" else OURS).start + 10

    assert lived.spent["saving"] == pytest.approx(5 * pause)
    assert lived.hours * HOUR == pytest.approx(HOUR + 5 * pause + start)
    assert lived.goodput == pytest.approx(HOUR / (HOUR + 5 * pause + start))


@pytest.mark.parametrize(
    ("name", "kind", "lost", "outage"),
    [
        ("torchrun", "loss", 50.0, THEIRS.loss + 15),
        ("torchrun", "preemption", 50.0, THEIRS.preemption + 15),
        ("torchrun", "crash", 50.0, THEIRS.crash + 15),
        ("restarts", "loss", 10.0, OURS.loss + 10),
        ("restarts", "preemption", 0.0, OURS.preemption + 10),
        ("restarts", "crash", 10.0, OURS.crash + 10),
        ("in place", "preemption", 0.0, STAYING.preemption + 20 * MORE.preemption),
    ],
)
def test_what_a_change_costs(name: arms.Name, kind: Kind, lost: float, outage: float) -> None:
    """250 s into the training on four nodes: back to the last save, 50 or 10 s ago, and on with those that are left."""
    found = scenario(hours=1.0, costs=COSTS)
    arm = arms.arm(name, found)
    at = arm.first_seconds + 250
    lived = simulate(replace(found, trace=(Change(at, kind),), returns=False), arm, "0")
    nodes = 4 if kind == "crash" else 3

    assert lived.spent["repeated"] == pytest.approx(lost)
    assert lived.spent["restarting"] == pytest.approx(arm.first_seconds + outage)
    assert lived.hours * HOUR == pytest.approx(at + outage + (HOUR - 250 + lost) * 4 / nodes)


def test_in_place_a_lost_node_costs_no_more_than_its_step() -> None:
    """However long ago the last snapshot was."""
    found = scenario(hours=1.0, costs=COSTS)
    arm = arms.arm("in place", found)
    lived = simulate(replace(found, trace=(Change(arm.first_seconds + 250, "loss"),), returns=False), arm, "0")

    assert 0 < lived.spent["repeated"] <= COSTS.step
    assert lived.spent["restarting"] == pytest.approx(arm.first_seconds + STAYING.loss + 20 * MORE.loss)


@pytest.mark.parametrize(
    ("name", "costs", "outage"),
    [
        ("torchrun", COSTS, THEIRS.join + 15),
        ("restarts", COSTS, OURS.join + 20 * RESTARTS.per_gigabyte.join + 10),
        ("in place", COSTS, STAYING.join + 20 * MORE.join),
        ("torchrun", replace(COSTS, transfer_rate=2e9), THEIRS.join + 15),
        ("restarts", replace(COSTS, transfer_rate=2e9), OURS.join + 10 + 10),
        ("in place", replace(COSTS, transfer_rate=2e9), STAYING.join + 10),
        ("restarts", replace(COSTS, snapshot=None), OURS.join + 15),
    ],
    ids=["torchrun", "restarts", "in place", "torchrun 2G", "restarts 2G", "in place 2G", "without the library"],
)
def test_a_node_that_comes_is_sent_the_state(name: arms.Name, costs: Costs, outage: float) -> None:
    """20 GB as fast as measured, or 2 GB a second; where there is no snapshot in memory, all load the checkpoint."""
    found = scenario(hours=1.0, costs=costs)
    arm = arms.arm(name, found)
    trace = (Change(1000, "preemption"), Change(2000, "return"))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert lived.spent["restarting"] == pytest.approx(arm.first_seconds + arm.outage("preemption") + outage)


@pytest.mark.parametrize("name", arms.NAMES)
def test_with_too_few_nodes_the_job_waits(name: arms.Name) -> None:
    """From the loss of the fourth node of a job that needs four to the coming of another."""
    found = scenario((4, 4), hours=1.0, costs=COSTS)
    arm = arms.arm(name, found)
    trace = (Change(1000, "preemption"), Change(3000, "return"))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert lived.spent["waiting"] == pytest.approx(2000)
    assert lived.finished


@pytest.mark.parametrize("name", arms.NAMES)
def test_where_all_nodes_are_gone_at_once_memory_is(name: arms.Name) -> None:
    """Every arm goes back to the checkpoint on disk, and loads that."""
    found = scenario((1, 1), hours=1.0, costs=COSTS)
    arm = arms.arm(name, found)
    trace = (Change(arm.first_seconds + 250, "loss"), Change(1000, "return"))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert lived.spent["repeated"] == pytest.approx(50)
    assert lived.spent["restarting"] == pytest.approx(arm.first_seconds + arm.cold_seconds)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("torchrun", "loss"), ("restarts", "loss"), ("restarts", "preemption"), ("in place", "loss")],
)
def test_where_the_last_waiting_node_goes_memory_is_gone(name: arms.Name, kind: Kind) -> None:
    """It costs what it does where all nodes go at once: the training since the last checkpoint."""
    found = scenario((2, 2), hours=1.0, costs=COSTS)
    arm = arms.arm(name, found)
    trace = (Change(arm.first_seconds + 250, "loss"), Change(500, kind), Change(1000, "return", 2))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert lived.spent["repeated"] == pytest.approx(50)
    assert lived.hours * HOUR == pytest.approx(1000 + arm.cold_seconds + HOUR - 200)


def test_in_place_waiting_workers_save_before_they_leave() -> None:
    """They have the state while they wait, so that only the step is repeated that the lost node broke."""
    found = scenario((2, 2), hours=1.0, costs=COSTS)
    arm = arms.arm("in place", found)
    trace = (Change(arm.first_seconds + 250, "loss"), Change(500, "preemption"), Change(1000, "return", 2))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert 0 < lived.spent["repeated"] <= COSTS.step
    assert lived.spent["restarting"] == pytest.approx(arm.first_seconds + arm.cold_seconds)


@pytest.mark.parametrize(
    ("name", "repeated"),
    [("restarts", 10.0), ("in place", 50.0)],
    ids=["restarts save", "in place the state stays in memory"],
)
def test_what_a_planned_change_leaves_on_disk(name: arms.Name, repeated: float) -> None:
    """Where all nodes are lost soon after one has left: workers that go on write to disk when it is due only."""
    found = scenario((1, 2), hours=1.0, costs=COSTS)
    arm = arms.arm(name, found)
    leaves = arm.first_seconds + 240
    lost = leaves + arm.outage("preemption") + 10
    trace = (Change(leaves, "preemption"), Change(lost, "loss"), Change(1000, "return", 2))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert lived.spent["repeated"] == pytest.approx(repeated)


def test_in_place_the_last_nodes_save_before_they_leave() -> None:
    """No other node goes on with the state."""
    found = scenario((1, 2), hours=1.0, costs=COSTS)
    arm = arms.arm("in place", found)
    trace = (Change(arm.first_seconds + 250, "preemption", 2), Change(1000, "return", 2))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert lived.spent["repeated"] == 0


def test_what_many_nodes_have_trained_is_lost_as_such() -> None:
    """Work since the last checkpoint was done by four nodes; when the last of them goes it takes all of it."""
    found = scenario((1, 4), hours=1.0, costs=COSTS)
    arm = arms.arm("restarts", found)
    begin = arm.first_seconds
    trace = (Change(begin + 290, "loss", 3), Change(begin + 320, "loss"), Change(begin + 400, "return", 4))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")
    alone = 320 - 290 - arm.outage("loss")

    assert lived.spent["repeated"] == pytest.approx(10 + 80 + alone)
    assert lived.hours * HOUR == pytest.approx(begin + 400 + arm.cold_seconds + HOUR - 200)


def test_a_change_during_an_outage_prolongs_the_outage() -> None:
    """Nothing more is lost, for nothing was trained."""
    found = scenario(hours=1.0)
    arm = restarting(100.0, 600.0)
    lived = simulate(replace(found, trace=(Change(500, "crash"), Change(560, "crash")), returns=False), arm, "0")

    assert lived.spent["restarting"] == pytest.approx(160)
    assert lived.spent["repeated"] == pytest.approx(500)


def test_a_node_beyond_the_last_unit_waits() -> None:
    """Two of three nodes train where nodes train in twos, and the third one's coming is no outage."""
    found = scenario((2, 4), hours=1.0, unit=2, costs=COSTS)
    arm = arms.arm("restarts", found)
    trace = (Change(1000, "preemption", 2), Change(1500, "return"), Change(2000, "return"))
    lived = simulate(replace(found, trace=trace, returns=False), arm, "0")

    assert lived.spent["restarting"] == pytest.approx(
        arm.first_seconds + arm.outage("preemption") + arm.outage("return")
    )


@pytest.mark.parametrize(("kind", "nodes", "hit"), [("loss", 1, 5 / 8), ("preemption", 2, 1 - 3 / 8 * 2 / 7)])
def test_a_node_beyond_the_last_unit_goes_unnoticed(kind: Kind, nodes: int, hit: float) -> None:
    """Five of eight nodes train where nodes train in fives: who goes is chance, and often only waits."""
    found = scenario((5, 10), hours=1.0, unit=5, costs=COSTS)
    arm = arms.arm("restarts", found)
    trace = (Change(1000, "preemption", 2), Change(2000, kind, nodes))
    lives = [simulate(replace(found, trace=trace, returns=False), arm, str(seed)) for seed in range(400)]
    outages = [life.spent["restarting"] - arm.first_seconds - arm.outage("preemption") for life in lives]

    assert {round(outage, 6) for outage in outages} == {0.0, round(arm.outage(kind), 6)}
    assert sum(outage > 1 for outage in outages) / 400 == pytest.approx(hit, abs=0.1)
    assert {life.changes for life in lives} == {2}


def test_a_crash_is_one_of_the_group() -> None:
    """A node that waits trains nothing that could fail."""
    found = scenario((5, 10), hours=1.0, unit=5, costs=COSTS)
    arm = arms.arm("restarts", found)
    trace = (Change(1000, "preemption", 2), Change(2000, "crash"))
    lives = [simulate(replace(found, trace=trace, returns=False), arm, str(seed)) for seed in range(20)]
    outage = arm.first_seconds + arm.outage("preemption") + arm.outage("crash")

    assert [life.spent["restarting"] for life in lives] == pytest.approx([outage] * 20)


def test_a_job_that_cannot_go_on_never_ends() -> None:
    """Too few nodes for ever: goodput 0, and no time to finish."""
    found = scenario((4, 4), trace=(Change(1000, "loss"),), returns=False)
    lived = simulate(found, arms.arm("restarts", found), "0")

    assert (lived.finished, lived.goodput, lived.hours) == (False, 0.0, math.inf)


def test_a_long_run_is_taken_to_go_on_as_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the most changes the rest is scaled; it is what the whole run would have been, but for chance."""
    found = scenario((1, 100), hours=200.0, rates=Rates(failures=400.0))
    arm = arms.arm("restarts", found)
    whole = simulate(found, arm, "0")
    monkeypatch.setattr(run, "MOST_CHANGES", 200)
    part = simulate(found, arm, "0")

    assert whole.changes > 500
    assert part.hours == pytest.approx(whole.hours, rel=0.05)
    assert part.changes == pytest.approx(whole.changes, rel=0.2)


@pytest.mark.parametrize("returns", [False, True], ids=["crashes alone", "losses with random returns"])
def test_a_trace_is_lived_to_its_end(monkeypatch: pytest.MonkeyPatch, *, returns: bool) -> None:
    """However many changes it has: an hour with a hundred of them says nothing of the quiet ones that follow."""
    kind: Kind = "loss" if returns else "crash"
    trace = tuple(Change(36.0 * index, kind) for index in range(1, 101))
    found = scenario((1, 4), trace=trace, returns=returns, rates=Rates(0.0, replacement_seconds=1.0))
    arm = arms.arm("restarts", found)
    whole = simulate(found, arm, "0")
    monkeypatch.setattr(run, "MOST_CHANGES", 20)

    assert whole.changes == (200 if returns else 100)
    assert whole.finished
    assert simulate(found, arm, "0") == whole


def test_after_a_trace_a_run_is_bounded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job for which the cluster is too unreliable does not run for ever."""
    monkeypatch.setattr(run, "MOST_CHANGES", 20)
    trace = tuple(Change(float(index), "crash") for index in range(1, 101))
    found = scenario(trace=trace, rates=Rates(failures=1e9))
    lived = simulate(found, arms.arm("torchrun", found), "0")

    assert lived.changes <= 100 * 21 + 20
    assert not lived.finished


def test_what_changes_nothing_is_not_counted() -> None:
    """A node that comes where all are there, and a crash where nothing trains."""
    found = scenario((4, 4), hours=1.0)
    trace = (Change(1000, "return"), Change(2000, "loss"), Change(2100, "crash"), Change(2200, "return"))
    lived = simulate(replace(found, trace=trace, returns=False), arms.arm("restarts", found), "0")

    assert lived.changes == 2
    assert lived.finished


@pytest.mark.parametrize("name", arms.NAMES)
def test_more_failures_are_never_better_on_average(name: arms.Name) -> None:
    """Each time with four times the failures."""
    found = [scenario((4, 16), hours=100.0, rates=replace(QUIET, failures=rate)) for rate in (0, 30, 120, 480, 1920)]
    goodput = [study.result(each, name, 20, 0).goodput.mean for each in found]

    assert goodput == sorted(goodput, reverse=True)
    assert len(set(goodput)) == len(goodput)


def test_ours_is_never_worse_than_torchrun_on_average() -> None:
    """With the same saves: in place at least as good as restarts, restarts as torchrun."""
    costs = replace(COSTS, checkpoint=Saving(600.0, 5.0), snapshot=Saving(600.0, 5.0))
    found = scenario((4, 16), hours=100.0, rates=Rates(100.0, 100.0, 100.0), costs=costs)
    torchrun, restarts, in_place = (each.goodput.mean for each in study.study(found, 20, 0))

    assert torchrun < restarts < in_place
