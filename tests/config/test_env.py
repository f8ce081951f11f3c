"""Variables of the training container: text, or a reference that the kubelet resolves."""

from __future__ import annotations

import pytest

from elastic_infra.config import ConfigError
from tests import jobs


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("text", {"name": "A", "value": "text"}),
        ("", {"name": "A", "value": ""}),
        (3, {"name": "A", "value": "3"}),
        (0.5, {"name": "A", "value": "0.5"}),
        ({"value": "text"}, {"name": "A", "value": "text"}),
        ({"secret": "s", "key": "k"}, {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
        ({"configmap": "c", "key": "k"}, {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}),
        ({"field": "status.hostIP"}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}),
        (
            {"field": "metadata.labels['example.com/team']"},
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['example.com/team']"}}},
        ),
        (
            {"field": "metadata.annotations['Example.com/team']"},
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['Example.com/team']"}}},
        ),
    ],
)
def test_a_variable_becomes_an_entry(given: object, entry: dict[str, object]) -> None:
    """Each spelling has one meaning."""
    assert jobs.container(jobs.job(env={"A": given}))["env"][-1] == entry


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, "env.A"),
        (None, "env.A"),
        (True, "env.A"),
        ([], "env.A"),
        ({"value": "v", "field": "status.podIP"}, "env.A"),
        ({"secret": "s"}, "env.A"),
        ({"value": "v", "key": "k"}, "env.A"),
        ({"secret": "s", "configmap": "c", "key": "k"}, "env.A"),
        ({"secret": "Not A Name", "key": "k"}, "env.A.secret"),
        ({"secret": "s", "key": "a/b"}, "env.A.key"),
        ({"field": "status.phase"}, "env.A.field"),
        ({"field": "metadata.names"}, "env.A.field"),
        ({"field": "metadata.labels['a"}, "env.A.field"),
        ({"field": "metadata.labels['a//b']"}, "env.A.field"),
        ({"field": "metadata.labels['.a']"}, "env.A.field"),
        ({"field": "metadata.labels['A.b/c']"}, "env.A.field"),
        ({"value": 3}, "env.A.value"),
    ],
)
def test_what_is_neither_is_refused(given: object, path: str) -> None:
    """None and several sources, half a reference, a field that pods do not have."""
    with pytest.raises(ConfigError) as caught:
        jobs.job(env={"A": given})

    assert [fault.path for fault in caught.value.faults] == [path]
