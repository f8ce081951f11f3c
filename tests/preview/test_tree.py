"""The walk that finds differences: items by their key, order by its name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.preview.tree import differences, plain, written

ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
CASES: dict[str, tuple[Any, Any, list[tuple[str, str]]]] = {
    "a leaf": ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", "value")]),
    "a key that comes": ({"a": {}}, {"a": {"b": 2}}, [("a.b", "value")]),
    "a part that goes": ({"a": {"b": 1}}, {"a": None}, [("a", "value")]),
    "an item in front": (ENV, [{"name": "Z", "value": "0"}, *ENV], [("[Z]", "value")]),
    "an item changed": (ENV, [ENV[0], {"name": "B", "value": "3"}], [("[B].value", "value")]),
    "items turned round": (ENV, ENV[::-1], [("", "items")]),
    "words turned round": (["a", "b"], ["b", "a"], [("", "items")]),
    "words changed": (["a", "b"], ["a", "c"], [("", "value")]),
    "keys turned round": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [("", "keys")]),
    "items without a key of their own": ([{"key": "x"}, {"key": "x"}], [{"key": "x"}], [("", "value")]),
    "a name with dots": ({"example.com/a": 1}, {"example.com/a": 2}, [("['example.com/a']", "value")]),
}


@pytest.mark.parametrize(("old", "new", "expected"), CASES.values(), ids=CASES.keys())
def test_each_difference_has_its_place(old: Any, new: Any, expected: list[tuple[str, str]]) -> None:
    """One difference each, named where a person would look."""
    assert [(written(each.path), each.kind) for each in differences(old, new)] == expected


def test_the_order_of_keys_can_be_left_out() -> None:
    """The API server does not know it; that of items it does."""
    old, new = {"a": 1, "b": ENV}, {"b": ENV[::-1], "a": 1}

    assert [plain(each.path) for each in differences(old, new, keys_matter=False)] == ["b"]


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "x", "y"]), inner, max_size=3),
    max_leaves=12,
)


@given(TREES)
def test_a_tree_does_not_differ_from_itself(tree: Any) -> None:
    """No difference is made up."""
    assert list(differences(tree, tree)) == []


@given(TREES, TREES)
def test_trees_differ_when_they_are_not_equal(old: Any, new: Any) -> None:
    """No difference is missed, whatever the shapes; a missing key and an explicit null are the same to Kubernetes."""
    assert bool(list(differences(old, new, keys_matter=False))) == (_without_none(old) != _without_none(new))


def _without_none(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_none(value) for key, value in tree.items() if value is not None}
    return [_without_none(item) for item in tree] if isinstance(tree, list) else tree
