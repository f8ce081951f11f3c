"""The benchmark of the launcher's deliveries: its page, and that each program delivers the launcher as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.thirty_jobs import __main__ as benchmark
from benchmarks.thirty_jobs import report
from tests.engine.alone import empty_stack

if TYPE_CHECKING:
    from pathlib import Path


def figures(value: float) -> dict[str, float]:
    """One run in which each figure has this value."""
    return dict.fromkeys(report.FIGURES, value)


def test_a_row_is_compared_with_the_first_one() -> None:
    """The launcher in the image costs the state nothing."""
    rounds = {report.BASE: [figures(10), figures(20), figures(30)], report.OWN: [figures(40), figures(80)]}
    *_, own = report.shown({"rounds": rounds}).splitlines()

    assert own.startswith(f"| {report.DELIVERIES[report.OWN]} | 2 | 60.0 (p95 80.0; 4.00) | 60.0 (4.00) |")


def test_every_delivery_is_measured() -> None:
    """And none that has no name on the page."""
    assert set(benchmark.ROUNDS) == set(report.DELIVERIES)


@pytest.mark.engine
@pytest.mark.parametrize(("delivery", "maps"), [("image", 0), ("elsewhere", 0), ("shared", 1), (report.OWN, 2)])
def test_two_jobs_have_so_many_launchers(pulumi_cli: Path, delivery: str, maps: int) -> None:
    """One each, one for both, or none in this stack."""
    del pulumi_cli
    with empty_stack() as stack:
        assert not stack.up(lambda: benchmark.program(delivery, 2)).failed
        assert [each["type"] for each in stack.state()].count("kubernetes:core/v1:ConfigMap") == maps
