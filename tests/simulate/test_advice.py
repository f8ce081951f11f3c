"""The best interval between saves, and the best range of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_infra.simulate import advice, arms
from elastic_infra.simulate.scenario import DAY, Costs, Rates, Saving, Scenario
from tests.simulate.cases import scenario


@pytest.mark.parametrize(("pause", "days", "young", "daly"), [(60.0, 1.0, 3220.0, 3180.0), (5.0, 0.25, 464.8, 461.5)])
def test_formulas(pause: float, days: float, young: float, daly: float) -> None:
    """By hand; Daly's is shorter by about the pause, and never longer than the time between interruptions."""
    assert advice.young(pause, days * 86_400) == pytest.approx(young, rel=1e-3)
    assert advice.daly(pause, days * 86_400) == pytest.approx(daly, rel=1e-3)
    assert advice.daly(100.0, 40.0) == 40.0


@pytest.mark.parametrize(("name", "nodes"), [("torchrun", 1), ("torchrun", 200), ("restarts", 2000)])
def test_the_search_meets_the_formulas_where_they_hold(name: arms.Name, nodes: int) -> None:
    """Failures are random, and pauses and outages short beside the time between them.

    The best interval is then within one candidate of the formulas', and theirs is worth as much but for half a
    hundredth.
    """
    found = advice.interval(scenario((1, nodes), rates=Rates()), name, 0)

    assert found is not None
    assert found.searched == pytest.approx(found.young, rel=0.5)
    assert found.daly == pytest.approx(found.young, rel=0.2)
    costs = Costs(checkpoint=Saving(found.young, 30.0), snapshot=Saving(found.young, 1.0))
    at_young = advice.interval(scenario((1, nodes), rates=Rates(), costs=costs), name, 0)
    assert at_young is not None
    assert at_young.given_goodput == pytest.approx(found.searched_goodput, abs=0.005)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("in place", scenario(rates=Rates())),
        ("torchrun", scenario()),
        ("restarts", scenario((1, 1), rates=Rates())),
        ("torchrun", scenario(rates=Rates(), costs=replace(Costs(), checkpoint=Saving(600.0, 0.0)))),
    ],
    ids=["a step is repeated at most", "nothing happens", "memory goes with the node", "saves are free"],
)
def test_no_advice_where_there_is_nothing_to_choose(name: arms.Name, changed: Scenario) -> None:
    """An interval would be made up."""
    assert advice.interval(changed, name, 0) is None


def test_a_planned_stop_is_no_interruption_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preempted node and its return send torchrun back to its checkpoint, ours not."""
    monkeypatch.setattr(advice, "REACH", 0)
    found = scenario((1, 100), rates=Rates(failures=10.0, preemptions=90.0))
    torchrun, restarts = (advice.interval(found, name, 0) for name in ("torchrun", "restarts"))

    assert torchrun is not None
    assert restarts is not None
    assert restarts.interruptions / torchrun.interruptions == pytest.approx(20.0)


@pytest.mark.parametrize(("least", "each_day"), [(4, 4.0), (3, 8.0)], ids=["waits for the node", "trains without it"])
def test_a_return_is_an_interruption_where_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, least: int, each_day: float
) -> None:
    """A group that waits for the lost node has nothing more to lose when another one comes."""
    monkeypatch.setattr(advice, "REACH", 0)
    found = advice.interval(scenario((least, 4), rates=Rates(failures=1000.0)), "torchrun", 0)

    assert found is not None
    assert found.interruptions == pytest.approx(DAY / each_day)


def test_the_best_range_is_the_fastest_within_the_budget() -> None:
    """Where twice the nodes are half as fast again, more money buys more nodes; for too little there is none."""
    found = scenario((1, 64), hours=10.0, efficiency=0.75, rates=Rates())
    small, large = (advice.best_range(found, "restarts", node_hours, 0) for node_hours in (200.0, 500.0))

    assert small is not None
    assert large is not None
    assert small.node_hours <= 200 < large.node_hours <= 500
    assert small.nodes[1] < large.nodes[1]
    assert small.hours > large.hours
    assert advice.best_range(found, "restarts", 1.0, 0) is None


def test_ranges_keep_the_unit() -> None:
    """Nodes that train in eights are bought in eights."""
    found = scenario((8, 64), hours=10.0, unit=8, rates=Rates())
    best = advice.best_range(found, "restarts", 10_000.0, 0)

    assert best is not None
    assert [size % 8 for size in best.nodes] == [0, 0]
