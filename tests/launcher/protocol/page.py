"""The page about the explored scenarios, made of how large each is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.common.results import Results, listed, table

PARTS: Final = {
    "test": "In `make test`",
    "deep": "Deeper, in `make soak`",
    "beyond": "Out of reach, the first states in `make soak`",
}
"""The heading of each part of the scenarios."""
PAGE: Final = """\
# What the checker explored

{facts}

Every reachable state of each scenario, with [the laws](../../docs/protocol.md#what-the-checker-explores) in each and a
way out of each; a scenario of which a law is broken would have ended the command. Where the number of states is a lower
bound, the scenario was left there: the laws held in the states that were seen, those with the shortest ways to them,
and no way out of them was looked for.

{explored} of {chosen} scenarios. One run a scenario: the numbers are the same in each, and the seconds are this run's.
"""


def document(found: Results) -> str:
    """The page as Markdown, with the scenarios that were explored so far."""
    head = PAGE.format(facts=listed(found), explored=len(found["scenarios"]), chosen=found["chosen"])
    parts = {name: [each for each in found["scenarios"] if each["part"] == name] for name in PARTS}
    tables = [f"\n## {PARTS[name]}\n\n{_table(scenarios)}\n" for name, scenarios in parts.items() if scenarios]
    return "".join([head, *tables])


def _table(scenarios: Sequence[Mapping[str, Any]]) -> str:
    rows = ([each["name"], *_numbers(each), f"{each['seconds']:.0f}"] for each in scenarios)
    return table([("scenario", "states", "transitions", "seconds"), *rows])


def _numbers(scenario: Mapping[str, Any]) -> tuple[str, str]:
    if scenario["transitions"] is None:
        return f"over {scenario['states']:,}", ""
    return f"{scenario['states']:,}", f"{scenario['transitions']:,}"
