"""`docs/protocol.md` says what the code does: its tables are compared with types, functions and explorations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import pytest

from elastic_infra.launcher.protocol import actions, apply_event, commit, events, machine, member_status, records
from elastic_infra.launcher.protocol.state import State, record
from elastic_infra.launcher.store import keys
from tests.launcher.protocol import checker, laws, world
from tests.launcher.protocol.test_model import LIMIT, MOVES, SCENARIOS, scenario

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"
NOT_EXPLORED = "not explored by the checker"


def tables(heading: str) -> Iterator[list[dict[str, str]]]:
    """The tables below a heading, each row by the names of its columns."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for lines in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        names, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines.splitlines())
        yield [dict(zip(names, row, strict=True)) for row in rows]


def table(heading: str, first: str) -> list[dict[str, str]]:
    """The table below a heading whose first column has this name."""
    return next(rows for rows in tables(heading) if next(iter(rows[0])) == first)


def code(cell: str) -> list[str]:
    """What a cell has in code type."""
    return re.findall(r"`([^`]+)`", cell)


def column(heading: str, name: str) -> list[str]:
    """The code words of a table's first column."""
    return [word for row in table(heading, name) for word in code(row[name])]


def name_of(function: object) -> str:
    """As the page spells it: module and name."""
    return f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"  # type: ignore[attr-defined]  # a function


@pytest.mark.parametrize(
    ("heading", "first", "expected"),
    [
        ("The states of a node", "state", get_args(records.NodeState)),
        ("The phases of a generation", "phase", get_args(records.Phase)),
        ("What is in the store", "presence", get_args(events.Presence)),
        ("What a node does after every event", "event", [kind.__name__ for kind in get_args(events.Event)]),
        ("What a node does after every event", "rule", [name_of(rule) for rule in machine.RULES]),
    ],
)
def test_page_lists_what_the_code_has(heading: str, first: str, expected: list[str]) -> None:
    """Each state, phase, presence, event and rule is there, in the code's order, and none that the code has not."""
    assert column(heading, first) == list(expected)


def test_page_lists_every_action_once() -> None:
    """Each action belongs to one rule; `Emit` is the observer's."""
    rows = table("What a node does after every event", "rule")

    assert sorted(word for row in rows for word in code(row["action"])) == sorted(
        kind.__name__ for kind in get_args(actions.Action) if kind is not actions.Emit
    )


def test_page_lists_the_keys_of_the_store() -> None:
    """Each key with the record that it holds."""
    expected = {
        keys.GENERATION: records.Generation,
        keys.node_key("<uuid>"): records.NodeRecord,
        keys.master_key(7).replace("7", "<n>"): records.Master,
    }

    rows = table("What is in the store", "key")
    assert {code(row["key"])[0]: code(row["holds"])[0] for row in rows} == {
        key: kind.__name__ for key, kind in expected.items()
    }


def test_page_explains_the_member_status() -> None:
    """Each word of it that decides something."""
    status = member_status.MemberStatus
    flags = [field.name for field in fields(status) if field.type == "bool"]
    flags += [name for name, value in vars(status).items() if isinstance(value, property)]

    assert [row["word"] for row in table("The phases of a generation", "word")] == flags


def test_transitions_are_decided_by_functions_that_exist() -> None:
    """The generation's come in the order in which the machine asks them; events are events."""
    decisions = [row["decided by"].strip("`") for row in table("The phases of a generation", "from")]
    nodes = table("The states of a node", "from")
    known = {name_of(rule) for rule in machine.RULES} | {apply_event.apply_event.__name__}

    assert list(dict.fromkeys(decisions)) == [*map(name_of, machine.DECISIONS), name_of(machine._forget)]
    assert name_of(commit.restore) in PAGE.read_text()
    assert {row["decided by"].strip("`") for row in nodes} <= known
    named = {word for row in [*nodes, *table("The phases of a generation", "from")] for word in code(row["event"])}
    assert named <= {kind.__name__ for kind in get_args(events.Event)}


SEEN_IN = [
    scenario("leave", 1, nodes=2, settled=1),
    scenario("crash", 1, nodes=2, settled=1, steps=1),
    scenario("fail", 1, nodes=2, settled=1, steps=1),
    scenario("freeze", 1, nodes=1, settled=1, nnodes="1:1"),
    scenario("crash", 1, nodes=2, settled=2, finish=True),
    scenario("", 0, nodes=2, settled=1, finish=True, steps=1),
    scenario("fail", 2, nodes=2, settled=2, moves=True),
    scenario("leave", 1, nodes=2, settled=1, moves=True),
    MOVES["a worker is killed"],
    MOVES["one of two workers is killed"],
]
"""Explorations that show every transition but those that the page calls unexplored."""


def test_transitions_of_the_page_are_those_that_happen() -> None:
    """Every transition in explored worlds is on the page, and every transition on the page happens in a world."""
    of_nodes: set[tuple[str, str]] = set()
    of_generations: set[tuple[str, str]] = set()

    def watched(state: State, event: events.Event, now: float) -> world.Step:
        after, ordered = machine.step(state, event, now)
        of_nodes.add((record(state).state, record(after).state))
        for action in ordered:
            if isinstance(action, actions.CompareAndSet):
                of_generations.add(_phases(after.generation, action.generation))
        return after, ordered

    for explored in SEEN_IN:
        checker.explore(replace(explored, stepper=watched), laws.ALL, laws.is_good, LIMIT)

    assert {(old, new) for old, new in of_nodes if old != new} == _pairs("The states of a node")
    assert of_generations == _pairs("The phases of a generation")


def _phases(there: records.Generation | None, wanted: records.Generation | None) -> tuple[str, str]:
    is_next = there is not None and wanted is not None and there.identity != wanted.identity
    return there.phase if there else "none", f"the next, {wanted.phase}" if is_next and wanted else _phase(wanted)


def _phase(generation: records.Generation | None) -> str:
    return generation.phase if generation else "none"


def _pairs(heading: str) -> set[tuple[str, str]]:
    rows = [row for row in table(heading, "from") if NOT_EXPLORED not in row["guard"]]
    return {(old.strip(" `"), row["to"].replace("`", "")) for row in rows for old in row["from"].split(",")}


def test_the_page_tells_how_many_scenarios_are_explored() -> None:
    """The number without ``pytest -m slow``, rounded to ten."""
    assert "| forty scenarios of" in PAGE.read_text()
    assert round(len(SCENARIOS | MOVES), -1) == 40
