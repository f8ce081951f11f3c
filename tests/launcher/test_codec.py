"""Dataclasses as JSON: what comes back is what was said, and nothing else gets in."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher import codec


@dataclass(frozen=True)
class Inner:
    """A dataclass inside another one."""

    name: str


@dataclass(frozen=True)
class Outer:
    """One field of every kind that the launcher uses."""

    count: int
    seconds: float = 0.0
    warm: bool = False
    inner: Inner | None = None
    parts: tuple[Inner, ...] = ()
    ranks: tuple[int, ...] = ()
    environ: dict[str, str] | None = None
    report: dict[str, object] | None = None


INNER = st.builds(Inner, st.text())
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)
OUTER = st.builds(
    Outer,
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none() | INNER,
    st.lists(INNER).map(tuple),
    st.lists(st.integers()).map(tuple),
    st.none() | st.dictionaries(st.text(), st.text()),
    st.none() | st.dictionaries(st.text(), JSON),
)


@given(OUTER)
def test_reading_what_was_written_gives_the_same(outer: Outer) -> None:
    """All values come back equal, and tuples as tuples."""
    assert codec.from_json(Outer, json.loads(json.dumps(codec.to_json(outer)))) == outer


@given(OUTER, OUTER, st.integers(0, 3), st.integers(0, 3))
def test_a_change_leads_where_the_whole_leads(before: Outer, after: Outer, at: int, removed: int) -> None:
    """New fields, dropped fields and a spliced array give the record that the changed object gives."""
    old, new = (json.loads(json.dumps(codec.to_json(outer))) for outer in (before, after))
    came = new.pop("ranks", [])
    new |= {"ranks": [*old["ranks"][:at], *came, *old["ranks"][at + removed :]]} if "ranks" in old else {}
    changes = {name: value for name, value in new.items() if old.get(name) != value and name != "ranks"}
    dropped = sorted(old.keys() - new.keys())
    spliced = {"ranks": (at, removed, came)} if "ranks" in old else {}

    changed = codec.changed(codec.from_json(Outer, old), {**changes, "unknown": 1}, dropped, spliced)
    assert changed == codec.from_json(Outer, new)


@pytest.mark.parametrize("change", [({"count": "1"}, [], {}), ({}, ["count"], {}), ([], [], {}), ({}, {}, {})])
def test_a_change_that_is_not_of_its_types_is_refused(change: tuple[object, object, object]) -> None:
    """As a whole object is."""
    with pytest.raises(TypeError):
        codec.changed(Outer(1), *change)


def test_defaults_are_left_out() -> None:
    """A record of a thousand nodes stays small, and a new field with a default costs nothing."""
    assert codec.to_json(Outer(1)) == {"count": 1}


def test_unknown_fields_are_ignored() -> None:
    """A newer launcher may write more."""
    assert codec.from_json(Outer, {"count": 1, "color": "red"}) == Outer(1)


def test_a_whole_number_is_a_float() -> None:
    """JSON need not tell them apart."""
    assert codec.from_json(Outer, {"count": 1, "seconds": 2}) == Outer(1, 2.0)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ([], "Outer must be an object"),
        ({}, "count"),
        ({"count": "1"}, "Outer.count must be int"),
        ({"count": True}, "Outer.count must be int"),
        ({"count": None}, "Outer.count must be int"),
        ({"count": 1, "seconds": True}, "Outer.seconds must be float"),
        ({"count": 1, "warm": 1}, "Outer.warm must be bool"),
        ({"count": 1, "inner": "x"}, "Inner must be an object"),
        ({"count": 1, "inner": {"name": 1}}, "Inner.name must be str"),
        ({"count": 1, "parts": {}}, "Outer.parts must be list"),
        ({"count": 1, "ranks": [1, "2"]}, "Outer.ranks must be int"),
        ({"count": 1, "environ": {"A": 1}}, "Outer.environ must be str"),
    ],
)
def test_what_is_no_such_record_is_a_type_error(value: object, named: str) -> None:
    """One kind of error, which names the field and quotes no value."""
    with pytest.raises(TypeError, match=named):
        codec.from_json(Outer, value)
