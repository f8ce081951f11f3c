"""The reader of one event line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_infra.launcher import event_log
from elastic_infra.timeline.records import HEAD, NoEventError, parse

LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text()
"""An integer of JSON may be more than any float."""
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
HEADS = st.fixed_dictionaries({}, optional=dict.fromkeys(HEAD, JSON))


def test_a_line_of_the_launcher_is_read_back(tmp_path: Path) -> None:
    """What the launcher writes is what the record says."""
    path = tmp_path / "events"
    log = event_log.EventLog(str(path), "pod-1", wall=lambda: 12.5, monotonic=lambda: 7.25)
    log.write("progress", generation=3, attempt=2, fields={"highest": 41, "steps_per_second": 1.5, "message": "m"})
    line = parse(path.read_text())
    found = line.record

    assert (line.wall, line.monotonic) == (12.5, 7.25)
    assert (found.event, found.node, found.generation, found.attempt) == ("progress", "pod-1", 3, 2)
    assert (found.whole("highest"), found.number("steps_per_second"), found.text("message")) == (41, 1.5, "m")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Traceback (most recent call last):", "not JSON"),
        ('{"time": "2026-01-01T00:00:00Z", "event": "progr', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no object"),
        ('{"loss": 0.5}', "no object"),
        ('{"event": "progress"}', "time"),
        ('{"event": "progress", "time": 5}', "time"),
    ],
)
def test_what_is_no_event_says_why(line: str, why: str) -> None:
    """The message names what is missing."""
    with pytest.raises(NoEventError, match=why):
        parse(line)


def test_a_number_beyond_all_floats_is_none() -> None:
    """It costs its field, and neither the line nor the file."""
    found = parse(f'{{"event": "e", "time": "2026-01-01T00:00:00Z", "monotonic": 1{400 * "0"}, "step": 1{400 * "0"}}}')

    assert (found.monotonic, found.record.number("step"), found.record.whole("step")) == (None, None, None)


@settings(max_examples=50, deadline=None)
@given(HEADS, st.dictionaries(st.text(), JSON))
def test_any_object_is_a_record_or_refused(head: dict[str, object], fields: dict[str, object]) -> None:
    """No line breaks the reader, and no field of a record breaks the code that reads the field."""
    try:
        found = parse(json.dumps({**fields, **head})).record
    except NoEventError:
        return
    for name in (*found.fields, "missing"):
        assert isinstance(found.text(name), str)
        assert found.number(name) is None or isinstance(found.whole(name), int)
