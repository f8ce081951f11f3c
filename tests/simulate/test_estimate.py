"""Means with their confidence."""

from __future__ import annotations

import math
import random

import pytest

from elastic_infra.simulate.estimate import _student, estimate


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.776), (9, 2.262), (29, 2.045), (1000, 1.962)])
def test_students_quantiles(freedom: int, quantile: float) -> None:
    """As in the tables."""
    assert _student(freedom) == pytest.approx(quantile, abs=0.01)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of 1,000 estimates of a known mean 95 % hold it, within four standard deviations of that count."""
    rng = random.Random(0)
    found = [estimate([rng.gauss(5, 2) for _ in range(10)]) for _ in range(1000)]

    assert sum(each.low <= 5 <= each.high for each in found) == pytest.approx(950, abs=28)


def test_single_runs() -> None:
    """One in twenty is below and one above the range, by nearest rank."""
    found = estimate([float(number) for number in range(1, 101)])

    assert (found.mean, found.p5, found.p95) == (50.5, 5.0, 96.0)


def test_a_run_without_an_end_has_no_mean() -> None:
    """What is known is the least."""
    assert estimate([3.0, math.inf, 2.0]).mean == math.inf
    assert estimate([3.0, math.inf, 2.0]).low == 2.0
