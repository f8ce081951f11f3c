"""The benchmark of many jobs: its programs declare the same objects, and its page has honest ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.many_jobs import __main__ as benchmark
from benchmarks.many_jobs import programs, report
from tests.engine.alone import empty_stack

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.engine import Stack


def figures(seconds: float) -> dict[str, float]:
    """One run in which each figure has this value."""
    return dict.fromkeys([*report.FIGURES, *report.CPU], seconds)


def test_our_component_is_compared_with_both_hand_written_programs() -> None:
    """With six bare resources, and with these in a component, which is what a repository has; others with the first."""
    rounds = {report.BASE: [figures(10)], report.PEER: [figures(16)], report.OURS: [figures(20)]}

    assert "20.0 (2.00, 1.25)" in report.row(1, report.OURS, rounds, report.FIGURES)
    assert "16.0 (1.60)" in report.row(1, report.PEER, rounds, report.FIGURES)


@pytest.mark.parametrize(("seconds", "verdict"), [(11.0, "yes"), (11.2, "**no**")])
def test_a_row_says_whether_the_aim_is_met(seconds: float, verdict: str) -> None:
    """At most 1.1 times the hand-written program, in each of the times; other programs have no aim."""
    rounds = {report.BASE: [figures(10)], report.PEER: [figures(10)], report.OURS: [figures(seconds)]}
    *_, peer, ours = report.shown({1: rounds}).splitlines()

    assert ours.endswith(f"| {verdict} |")
    assert peer.endswith("| - |")


def test_the_page_says_what_two_resources_cost_that_do_nothing() -> None:
    """With the most jobs of which this is known; a page of earlier figures has no such part."""
    arms = (report.BASE, report.PEER, report.FLOOR, report.OURS)
    rounds = {arm: [figures(10 + number)] for number, arm in enumerate(arms)}
    *_, costs, told = report.where({1: rounds, 100: rounds, 500: {report.BASE: [figures(9)]}})

    assert "12.0 (1.20)" in costs
    assert "500" not in costs
    assert told.startswith("With 100 jobs, preview / up / unchanged take 1.20 / 1.20 / 1.20 times")
    assert report.where({1: {report.BASE: [figures(10)]}}) == []


@pytest.mark.parametrize(
    ("power", "told"), [(1, "All meet the aim of 1.1"), (2, "1.1 at most is missed by: component.")]
)
def test_a_program_that_grows_too_fast_is_named(power: int, told: str) -> None:
    """Where a slope is above the aim."""
    found = {1: {report.OURS: [figures(1)]}, 5: {report.OURS: [figures(5**power)]}}

    assert told in report.slopes(found)[0]


@pytest.mark.parametrize(("power", "expected"), [(1, 1.0), (2, 2.0)])
def test_a_slope_tells_linear_from_quadratic(power: int, expected: float) -> None:
    """Five times as many jobs that take five times as long have a slope of 1."""
    assert report.slope("up", [figures(1)], [figures(5**power)], 5) == pytest.approx(expected)


@pytest.fixture(scope="module")
def made(pulumi_cli: Path) -> dict[str, list[dict[str, Any]]]:
    """The Kubernetes objects of two jobs in the state, by the program that declared them; skipped without a CLI."""
    del pulumi_cli

    def objects(stack: Stack, arm: str) -> list[dict[str, Any]]:
        jobs = programs.rendered(2)
        assert not stack.up(lambda: programs.PROGRAMS[arm](jobs)).failed
        kinds = [each for each in stack.state() if each["type"].startswith("kubernetes:") and each.get("inputs")]
        return [each["inputs"] for each in kinds if not each["type"].startswith("kubernetes:yaml")]

    found = {}
    for arm in programs.PROGRAMS:
        with empty_stack(benchmark.YamlProvider()) as stack:
            found[arm] = objects(stack, arm)
    return found


@pytest.mark.engine
def test_the_program_without_logic_has_as_many_resources_as_ours(pulumi_cli: Path) -> None:
    """What ours costs beyond it is what ours does, and not how much there is."""
    del pulumi_cli
    jobs, counts = programs.rendered(2), []
    for arm in (report.FLOOR, report.OURS):
        with empty_stack(benchmark.YamlProvider()) as stack:
            assert not stack.up(lambda arm=arm: programs.PROGRAMS[arm](jobs)).failed  # type: ignore[misc]
            counts.append(len(stack.state()))

    assert counts[0] == counts[1]


@pytest.mark.engine
@pytest.mark.parametrize("arm", programs.PROGRAMS)
def test_each_program_declares_the_same_objects(made: dict[str, list[dict[str, Any]]], arm: str) -> None:
    """A comparison of programs that declare different objects would compare nothing."""

    def by_name(objects: list[dict[str, Any]]) -> dict[str, Any]:
        return {f"{each['kind']} {each['metadata']['name']}": each.get("spec") for each in objects}

    assert len(by_name(made[arm])) == 12
    assert by_name(made[arm]) == by_name(made[report.BASE])
