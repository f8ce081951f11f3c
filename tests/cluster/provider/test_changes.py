"""What the stand-in tells the engine of a change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.provider import changes, objects

KEYS = st.text(st.characters(codec="ascii", exclude_characters='"]', min_codepoint=33), min_size=1)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(DOCUMENTS)
def test_a_document_does_not_differ_from_itself(document: Any) -> None:
    """No change without a change."""
    assert not list(changes.changes(document, document))


@given(DOCUMENTS, DOCUMENTS)
def test_every_change_is_at_a_place_that_differs(old: Any, new: Any) -> None:
    """Documents that differ have a change, and it names a place where they differ."""
    found = list(changes.changes(old, new))

    assert bool(found) == (old != new)
    assert all(objects.lookup(old, c.path) != objects.lookup(new, c.path) for c in found if c.kind == "update")


@given(st.lists(KEYS | st.integers(0, 9), min_size=1, max_size=5).filter(lambda path: isinstance(path[0], str)))
def test_a_path_survives_its_text(path: list[str | int]) -> None:
    """Pulumi's notation keeps keys with dots and brackets apart from steps."""
    assert changes.parse(changes.render(tuple(path))) == tuple(path)


@pytest.mark.parametrize(
    ("kind", "path", "replaced"),
    [
        ("PyTorchJob", ("metadata", "name"), True),
        ("PyTorchJob", ("metadata", "namespace"), True),
        ("PyTorchJob", ("metadata", "labels", "a"), False),
        ("PyTorchJob", ("spec", "elasticPolicy", "maxReplicas"), False),
        ("ConfigMap", ("data", "x"), True),
        ("PersistentVolumeClaim", ("spec", "resources", "requests", "storage"), True),
        ("Job", ("spec", "template", "spec", "restartPolicy"), True),
    ],
)
def test_what_cannot_change_in_place_is_replaced(kind: str, path: changes.Path, *, replaced: bool) -> None:
    """Identity is fixed for every object, and Kubernetes fixes parts of some kinds."""
    assert changes.replaces(kind, changes.Change(path, "update")) is replaced


def test_nested_paths_are_in_pulumis_notation() -> None:
    """The engine matches `replace_on_changes` against these texts."""
    old = {"spec": {"containers": [{"image": "a"}]}, "metadata": {"annotations": {"pulumi.com/x": "1"}}}
    new = {"spec": {"containers": [{"image": "b"}, {"image": "c"}]}, "metadata": {"annotations": {}}}

    assert [(c.text, c.kind) for c in changes.changes(old, new)] == [
        ('metadata.annotations["pulumi.com/x"]', "delete"),
        ("spec.containers[0].image", "update"),
        ("spec.containers[1]", "add"),
    ]
