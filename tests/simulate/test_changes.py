"""Random changes have the rates that were asked for, and a trace's changes come at their times."""

from __future__ import annotations

from collections import Counter

import pytest

from elastic_infra.simulate.changes import Changes
from elastic_infra.simulate.scenario import DAY, HOUR, Change, Rates
from tests.simulate.cases import scenario


def test_rates() -> None:
    """On 1,000 nodes each kind comes as often a day as its rate says, within four standard deviations."""
    rates = Rates(failures=6.0, preemptions=30.0, crashes=90.0)
    changes, now, counts = Changes(scenario((1, 1000), rates=rates), "1"), 0.0, Counter[str]()
    while now < 100 * DAY:
        change = changes.after(now, 1000, 1000)
        assert change is not None
        now = change.at
        counts[change.kind] += 1

    for kind, rate in {"loss": 600, "preemption": 3000, "crash": 9000}.items():
        assert counts[kind] == pytest.approx(rate, abs=4 * rate**0.5)


def test_replacements() -> None:
    """Of two nodes that are gone the first is replaced after half the mean time."""
    changes = Changes(scenario((1, 4), rates=Rates(0.0, replacement_seconds=600.0)), "1")
    times = [change.at for _ in range(4000) if (change := changes.after(0.0, 2, 2)) is not None]

    assert sum(times) / len(times) == pytest.approx(300, rel=0.06)


def test_nothing_happens_without_rates() -> None:
    """Nor where all that would return is there."""
    assert Changes(scenario(), "1").after(0.0, 4, 4) is None


def test_only_nodes_that_train_have_workers_that_crash() -> None:
    """Of 100 nodes of which 40 train, all are lost as often as one of the group crashes; without a group none does."""
    changes = Changes(scenario((1, 100), rates=Rates(failures=10.0, crashes=25.0)), "1")
    counts = Counter(change.kind for _ in range(4000) if (change := changes.after(0.0, 100, 40)) is not None)

    assert counts["loss"] == pytest.approx(2000, abs=4 * 1000**0.5)
    assert counts["loss"] + counts["crash"] == 4000
    assert Changes(scenario((2, 4), rates=Rates(0.0, crashes=25.0), returns=False), "1").after(0.0, 1, 0) is None


def test_a_trace_comes_at_its_times_among_random_changes() -> None:
    """No change of the trace is left out, and time never runs back."""
    trace = tuple(Change(hour * HOUR, "crash", nodes=7) for hour in range(24))
    changes = Changes(scenario((1, 100), rates=Rates(1000.0), trace=trace), "1")
    seen: list[Change] = []
    now = 0.0
    while len([change for change in seen if change.nodes == 7]) < len(trace):
        change = changes.after(now, 100, 100)
        assert change is not None
        assert change.at >= now
        now = change.at
        seen.append(change)

    assert [change for change in seen if change.nodes == 7] == list(trace)
    assert len(seen) == pytest.approx(24 + 100 * 23 / 24, abs=50)
