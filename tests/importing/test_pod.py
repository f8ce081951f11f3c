"""Variables, ports and devices of pods."""

from __future__ import annotations

from typing import Any, cast

import pytest

from elastic_infra import JobConfig, render
from elastic_infra.importing import Imported
from elastic_infra.manifests.figures import pod_template
from tests.importing.objects import imported, noted, pytorch_job


def container(found: Imported) -> dict[str, Any]:
    """The container that is rendered again."""
    template = cast("Any", pod_template(render("j", JobConfig.from_mapping(found.job)).workload))
    rendered: dict[str, Any] = template["spec"]["containers"][0]
    return rendered


def variables(found: Imported) -> list[dict[str, Any]]:
    """Those of one letter, in the order in which they are set."""
    return [each for each in container(found)["env"] if len(each["name"]) == 1]


MEMORY = {"resourceFieldRef": {"resource": "limits.memory"}}


@pytest.mark.parametrize(
    ("given", "rendered"),
    [
        ([{"name": "A", "value": None}], [{"name": "A", "value": ""}]),
        ([{"name": "A"}, None], [{"name": "A", "value": ""}]),
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], [{"name": "A", "value": "2"}]),
        (
            [{"name": "A", "value": "1"}, {"name": "A", "valueFrom": MEMORY}],
            [{"name": "A", "valueFrom": MEMORY}],
        ),
        (
            [
                {"name": "M", "valueFrom": MEMORY},
                {"name": "B", "value": "$(M)-x"},
                {"name": "C", "value": "$(B)"},
                {"name": "D", "value": "d"},
            ],
            [
                {"name": "D", "value": "d"},
                {"name": "M", "valueFrom": MEMORY},
                {"name": "B", "value": "$(M)-x"},
                {"name": "C", "value": "$(B)"},
            ],
        ),
    ],
)
def test_variables_have_the_values_that_kubernetes_gives_them(
    given: list[dict[str, Any] | None], rendered: list[dict[str, Any]]
) -> None:
    """The last of a name counts, and one can refer only to those before it."""
    assert variables(imported(pytorch_job({"env": given}))) == rendered


def test_a_variable_that_is_refused_is_told_once() -> None:
    """Nothing of it stays that would be refused in turn."""
    env = [{"name": "A", "value": "\0"}, {"name": "B", "value": "b"}]
    found = imported(pytorch_job({"env": env}))

    assert found.job["env"] == {"B": {"value": "b"}}
    assert [note.partition(":")[0] for note in found.notes if note.startswith("leaves out")] == [
        "leaves out env.A.value"
    ]


def test_variables_of_the_shell_are_the_containers() -> None:
    """In place of others of their names, which the shell would not pass on; those of the launcher are told."""
    env = [{"name": "A", "valueFrom": MEMORY}, {"name": "B", "value": "b"}]
    found = imported(pytorch_job({"command": ["sh", "-c", "A=2 RANK=0 torchrun t.py"], "env": env}))

    assert variables(found) == [{"name": "B", "value": "b"}, {"name": "A", "value": "2"}]
    assert any("RANK" in note for note in found.notes)


def test_a_port_of_the_operators_name_is_there_once() -> None:
    """Two ports of one name are refused with the pod."""
    ports = [{"name": "pytorchjob-port", "containerPort": 23456}, {"name": "metrics", "containerPort": 9090}]
    found = imported(pytorch_job({"ports": ports}))

    assert [each["name"] for each in container(found)["ports"]] == ["pytorchjob-port", "metrics"]
    assert any(note.startswith("drops") and "ports: 23456" in note for note in found.notes)


def test_items_of_one_key_are_one_and_told() -> None:
    """An overlay has one of each key, so that the others cannot be in it."""
    ports = [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    spread = [{"topologyKey": "zone", "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"} for skew in (1, 2)]
    found = imported(pytorch_job({"ports": ports}, pod={"topologySpreadConstraints": spread}))

    assert {"containerPort": 53, "protocol": "TCP"} in container(found)["ports"]
    assert noted(found, "drops all but the first spec.containers[pytorch].ports[53]")
    assert noted(found, "drops all but the first spec.topologySpreadConstraints[zone]")


@pytest.mark.parametrize(("amount", "gpus"), [("1k", 1000), ("4", 4), (8, 8), (None, None), (0, None), ("500m", None)])
def test_gpus_are_counted_as_kubernetes_counts_them(amount: object, gpus: int | None) -> None:
    """A quantity is a number too; what is no number of devices has no field."""
    job = imported(pytorch_job({"resources": {"limits": {"nvidia.com/gpu": amount}}})).job

    assert job.get("resources", {}).get("gpu", {}).get("count") == gpus


@pytest.mark.parametrize("volume", [None, {"emptyDir": {}}, {"name": None, "emptyDir": None}])
def test_a_volume_without_a_name_ends_in_no_traceback(volume: dict[str, Any] | None) -> None:
    """The others are read."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mounts = [{"name": "data", "mountPath": "/data"}]
    found = imported(pytorch_job({"volumeMounts": mounts}, pod={"volumes": [volume, claim]}))

    assert found.job["storage"]["volumes"] == [{"name": "data", "claim": "data"}]


def test_null_among_texts_is_an_empty_text() -> None:
    """As Kubernetes decodes it."""
    found = imported(pytorch_job({"args": ["--x", None]}, pod={"nodeSelector": {"spot": None}}))

    assert found.job["args"] == ["--x", ""]
    assert found.job["placement"]["node_selector"] == {"spot": ""}
