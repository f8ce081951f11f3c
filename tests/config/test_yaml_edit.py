"""A few keys of a job file change, and the rest of its text stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.config.load import parse_mapping
from elastic_infra.config.yaml_edit import edited, without

TEXT = """\
# A job.
image: i   # built by CI
env:
  A: "1"
  # the other one
  B: |
    two
    lines

policy:  {keep: true, drop: [1, 2], last: x}   # one line
list:
- a
- b: 1
  c: 2
# the end
target: auto
"""


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        (("env", "A"), '  A: "1"\n'),
        (("env", "B"), "  B: |\n    two\n    lines\n"),
        (("env",), TEXT[TEXT.index("env") : TEXT.index("\npolicy")]),
        (("policy",), "policy:  {keep: true, drop: [1, 2], last: x}   # one line\n"),
        (("policy", "keep"), "keep: true, "),
        (("policy", "drop"), "drop: [1, 2], "),
        (("policy", "last"), ", last: x"),
        (("list",), "list:\n- a\n- b: 1\n  c: 2\n"),
    ],
    ids=".".join,
)
def test_a_key_is_taken_out_with_its_lines(path: tuple[str, ...], gone: str) -> None:
    """Comments of other keys, blank lines and the file's own spelling stay."""
    assert edited(TEXT, "target", "job", [path]) == TEXT.replace(gone, "").replace("auto", "job")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image: i", "image: i\ntarget: job\n"),
        ("image: i  # why\n", "image: i  # why\ntarget: job\n"),
        ("target: 'auto' # why\nimage: i\n", "target: job # why\nimage: i\n"),
        ('{"image": "i"}', '{"target": "job", "image": "i"}'),
        ('{"image": "i", "target": "auto"}', '{"image": "i", "target": "job"}'),
    ],
)
def test_a_key_is_set(text: str, expected: str) -> None:
    """Where the key is not there, it comes last, and first in JSON."""
    assert edited(text, "target", "job", []) == expected


def test_what_cannot_be_edited_is_written_anew() -> None:
    """The key that goes holds an anchor that another one needs."""
    found = edited("a: &x {b: 1}\nc: *x\n", "target", "job", [("a",)])

    assert yaml.safe_load(found) == {"c": {"b": 1}, "target": "job"}


KEYS = st.sampled_from(["a", "b", "target", "on", "1", "x y"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text("ab:#'\"\n -{}", max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def _paths(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return []
    return [found for key in data for found in ((*path, key), *_paths(data[key], (*path, key)))]


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), st.sampled_from(["block", "flow", "json"]), st.data())
def test_any_text_says_afterwards_what_was_asked(data: dict[str, Any], style: str, draw: st.DataObject) -> None:
    """Whatever the style, only the keys that were named have changed."""
    as_yaml = yaml.safe_dump(data, default_flow_style=style == "flow", sort_keys=False)
    text = json.dumps(data) if style == "json" else as_yaml
    paths = draw.draw(st.lists(st.sampled_from([path for path in _paths(data) if path[0] != "target"] or [()])))
    removed = [path for path in paths if path and not any(path[: len(each)] == each for each in paths if each != path)]

    assert parse_mapping(edited(text, "target", "job", list(dict.fromkeys(removed)))) == without(
        {**data, "target": "job"}, removed
    )
