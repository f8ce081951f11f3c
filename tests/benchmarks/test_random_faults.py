"""The pages about random faults say which laws held, and what each kind of fault cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import faults, results
from tests.launcher.protocol import page as checker
from tests.launcher.soak import plan, report
from tests.launcher.soak.verdict import Injection
from tests.launcher.soak_in_place import plan as plan_in_place
from tests.launcher.soak_in_place import report as report_in_place
from tests.launcher.soak_in_place.verdict import Undisturbed

MACHINE = ["torch 2.15, 2 CPUs"]
TIMES = {1: 1.0, 2: 2.5, 3: 3.0}
JOURNAL = [{"event": "step", "time": time, "step": step, "generation": 1} for step, time in TIMES.items()]
INJECTIONS = [Injection(0, plan.KINDS[0], "a", 1.1, paired=False), Injection(1, plan.KINDS[1], "b", 2.6, paired=True)]


def outcome() -> report.Outcome:
    """Two faults of a job that did not reach its end."""
    return report.Outcome(
        seed=7,
        planned=2,
        workers=8,
        seconds=12.3,
        trouble="no step for 100 s",
        journal=[{**line, "meeting": "m", "weight": 1, "restarts": 0} for line in JOURNAL],
        events=[],
        injections=INJECTIONS,
        exits=[("a", 0), ("b", -9), ("b", 0)],
        left_behind=[],
        unasked=[],
        final=(3, 1),
        trajectory=[1, 1, 1, 1],
    )


def outcome_in_place(**changed: Any) -> report_in_place.Outcome:
    """One fault of a job in place."""
    kind, point = plan_in_place.KINDS[0], plan_in_place.POINTS[0]
    journal = [{**line, "pid": 1, "rank": 0, "world": 1, "mark": 0.0, "digest": "a"} for line in JOURNAL]
    given: dict[str, Any] = {
        "seed": 7,
        "nodes": 3,
        "workers": 2,
        "planned": 1,
        "seconds": 12.3,
        "trouble": "",
        "journal": journal,
        "injections": [Injection(0, f"{kind} {point}", "a", 1.1, paired=False)],
        "struck": frozenset(),
        "unasked": [],
        "ends": [0],
        "expected": [Undisturbed([], 0.0)] * 3,
    }
    return report_in_place.Outcome(**{**given, **changed})


def test_a_kind_of_fault_has_its_count_its_median_and_its_p95() -> None:
    """In the order of the kinds; one that never struck has no row."""
    struck = [{"kind": "cut", "paired": number == 0, "seconds": float(number)} for number in range(21)]
    struck.append({"kind": "freeze", "paired": False, "seconds": 2.0})

    assert faults.costs(struck, ["freeze", "cut", "close"]) == (
        "| fault | n | of these during a change | median outage | p95 | longest |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| freeze | 1 | 0 | 2.0 s | 2.0 s | 2.0 s |\n"
        "| cut | 21 | 1 | 10.0 s | 19.0 s | 20.0 s |"
    )


def test_a_law_that_did_not_hold_ends_the_program_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page says so too, and the figures are kept: a run that broke a law must not be forgotten."""
    found = {"machine": MACHINE, "laws": {"one": [], "two": ["here", "there"]}}
    out = tmp_path / "SOAK.json"

    def document(read: results.Results) -> str:
        return faults.laws(read["laws"])

    assert faults.tell(found, document, out) == 1
    assert results.load(out) == found
    assert results.page(out).read_text() == "| law | held |\n| --- | --- |\n| one | yes |\n| two | NO |"
    assert capsys.readouterr().err == "NOT KEPT: two\n  here\n  there\n"
    assert faults.tell({**found, "laws": {"one": []}}, document, None) == 0


def test_the_page_of_a_soak_is_made_of_what_was_kept() -> None:
    """The facts, the plan, what broke, and a row for each fault, in whose outage the next one does not count."""
    found = report.results(outcome(), MACHINE)
    page = report.document(found)

    assert found["laws"]["the job succeeded"] == ["no step for 100 s"]
    assert page.startswith("# The soak with 8 workers a node\n\n- torch 2.15, 2 CPUs\n")
    assert "1 to 3 nodes of 8 workers. 2 of 2 faults in 12 s" in page
    assert "Exit codes of launchers: -9: 1, 0: 2." in page
    assert "| the job succeeded | NO |" in page
    assert "| kill worker | 1 | 0 | 1.4 s | 1.4 s | 1.4 s |\n| kill agent | 1 | 1 | 0.4 s |" in page


@pytest.mark.parametrize(
    ("changed", "title"),
    [
        ({}, "The soak in place"),
        ({"sharded": True}, "The soak in place, a sharded model"),
        ({"sharded": True, "left_alone": []}, "The soak in place, a sharded model, a fixed size"),
    ],
)
def test_the_page_of_a_soak_in_place_says_what_was_trained(changed: dict[str, Any], title: str) -> None:
    """Each shape has a page of its own; the plan, the laws and the faults are there in each."""
    page = report_in_place.document(report_in_place.results(outcome_in_place(**changed), MACHINE))

    assert page.startswith(f"# {title}\n\n- torch 2.15, 2 CPUs\n")
    assert "3 nodes of 2 workers. 1 of 1 faults in 12 s, 3 steps." in page
    assert "| the job succeeded | yes |" in page
    assert "| kill worker, forward | 1 | 0 | 1.4 s | 1.4 s | 1.4 s |" in page


def test_the_page_shows_what_the_longest_lives_held() -> None:
    """Of workers and of the launchers' processes, early and late; memory in MiB."""
    held = {"descriptors": 20, "threads": 5, "kib": 2048}
    lines = [{"pid": 7, "world": 4, **held} for _ in range(9)]
    page = report_in_place.document(report_in_place.results(outcome_in_place(launchers=lines), MACHINE))

    assert "| a launcher's process, read 9 times in groups of 4 | 20 -> 20 | 5 -> 5 | 2 -> 2 |" in page


def test_the_checkers_page_tells_the_end_of_a_scenario_from_a_bound() -> None:
    """By its part; a part without scenarios has no table."""
    scenario = {"part": "test", "name": "two come", "states": 1234, "transitions": 56_789, "seconds": 1.4}
    left = {**scenario, "part": "beyond", "name": "two faults", "states": 50_000, "transitions": None}
    page = checker.document({"machine": MACHINE, "chosen": 3, "scenarios": [scenario, left]})

    assert "2 of 3 scenarios." in page
    assert page.count("## ") == 2
    assert "## In `make test`\n\n| scenario | states | transitions | seconds |" in page
    assert "| two come | 1,234 | 56,789 | 1 |" in page
    assert "| two faults | over 50,000 |  | 1 |" in page
