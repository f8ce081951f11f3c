"""The store's records as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.launcher import codec
from elastic_infra.launcher.protocol import records

CAUSES = st.builds(
    records.Cause, kind=st.sampled_from(["hang", "node_lost"]), node=st.text(), rank=st.none() | st.integers()
)
MEMBERS = st.lists(st.builds(records.Member, st.text(), st.text(), st.integers(1, 9)), max_size=3).map(tuple)
SIZES = st.lists(st.integers(0), max_size=3).map(tuple)
GENERATIONS = st.builds(
    records.Generation,
    number=st.integers(0),
    phase=st.sampled_from(["running", "proposed", "draining", "broken", "final"]),
    members=MEMBERS,
    stop_step=st.none() | st.integers(0),
    cause=st.none() | CAUSES,
    incarnation=st.text(),
    budget=st.builds(records.Budget, restarts=st.integers(0), failed_step=st.none() | st.integers()),
    finishing=st.booleans(),
    finished=st.lists(st.text(), max_size=3).map(tuple),
    trained=SIZES,
    refused=SIZES,
)


@given(GENERATIONS)
def test_generation_survives_its_json(generation: records.Generation) -> None:
    """Reading what was written gives the same record."""
    assert codec.from_json(records.Generation, json.loads(json.dumps(codec.to_json(generation)))) == generation


@given(st.builds(records.NodeRecord, st.text(), st.text(), st.just("ready"), hung_at=SIZES))
def test_node_survives_its_json(node: records.NodeRecord) -> None:
    """Reading what was written gives the same record."""
    assert codec.from_json(records.NodeRecord, json.loads(json.dumps(codec.to_json(node)))) == node


def test_fields_of_a_newer_launcher_are_ignored() -> None:
    """Unknown fields of a record are ignored."""
    assert codec.from_json(records.NodeRecord, {"uuid": "u", "name": "", "state": "ready", "color": "red"}).uuid == "u"


@pytest.mark.parametrize(
    "value",
    [{}, {"number": "1"}, {"number": 1, "members": [1]}, {"number": 1, "cause": "x"}, {"number": 1, "budget": []}],
)
def test_what_is_no_record_is_refused(value: dict[str, object]) -> None:
    """The store may hold any value; a value that is no record raises only a TypeError."""
    with pytest.raises(TypeError):
        codec.from_json(records.Generation, value)
