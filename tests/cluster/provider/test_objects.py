"""How values pass between the engine and the API server."""

from __future__ import annotations

from tests.cluster.provider import objects

METADATA = {"name": "a", "namespace": "n"}
JOB = {"kind": "Job", "metadata": METADATA, "spec": {"replicas": 2, "items": [{"x": 1}]}}


def test_whole_numbers_stay_whole() -> None:
    """The engine's numbers are floats; Kubernetes refuses `3.0` where it wants a count."""
    sent = objects.from_struct(objects.to_struct({"count": 3, "share": 0.5, "deep": [{"n": 7}]}))

    assert sent == {"count": 3, "share": 0.5, "deep": [{"n": 7}]}
    assert isinstance(sent["count"], int)
    assert isinstance(sent["deep"][0]["n"], int)


def test_a_name_is_made_once() -> None:
    """An object without a name gets one that the next update keeps."""
    first = objects.checked({"kind": "ConfigMap"}, {}, "settings", namespaced=True)
    second = objects.checked({"kind": "ConfigMap", "data": {}}, first, "settings", namespaced=True)

    assert first["metadata"]["name"].startswith("settings-")
    assert first["metadata"] == second["metadata"]
    assert first["metadata"]["namespace"] == "default"


def test_an_import_finds_its_object_by_the_resource() -> None:
    """The type in the URN has version and kind, the id namespace and name."""
    urn = "urn:pulumi:dev::team::elastic-infra:index:ElasticTrainingJob$kubernetes:{}::train-workload"
    found = [objects.addressed(urn.format(type_), "n/a") for type_ in ("batch/v1:Job", "core/v1:Secret")]
    server = {"uid": "1", "resourceVersion": "2", "generation": 3, "creationTimestamp": "now", "managedFields": []}

    assert [(each["apiVersion"], each["kind"]) for each in found] == [("batch/v1", "Job"), ("v1", "Secret")]
    assert found[0]["metadata"] == JOB["metadata"]
    assert objects.authored({**JOB, "metadata": {**METADATA, **server}, "status": {"active": 1}}) == JOB


def test_what_others_own_is_applied_as_it_is() -> None:
    """An ignored path takes the live value, so that applying it conflicts with no other writer."""
    live = {**JOB, "spec": {"replicas": 5, "items": [{"x": 9}]}}

    applied = objects.with_live(JOB, live, ["spec.replicas", "spec.items[0].x", "spec.missing"])

    assert applied["spec"] == live["spec"]
    assert JOB["spec"] == {"replicas": 2, "items": [{"x": 1}]}


def test_drift_shows_and_defaults_do_not() -> None:
    """A refresh takes live values for what was asked for, and leaves out what the server added."""
    live = {**JOB, "spec": {"replicas": 4, "items": [{"x": 1, "default": True}], "more": 1}, "status": {}}

    assert objects.as_inputs(JOB, live) == {**JOB, "spec": {"replicas": 4, "items": [{"x": 1}]}}
