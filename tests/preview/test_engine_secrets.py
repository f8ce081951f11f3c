"""What a preview of the engine tells about secrets, which it masks all alike."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.preview.engine_secrets import named_secrets, told_apart
from elastic_infra.preview.tree import differences, written


def container(*names: str) -> dict[str, Any]:
    """A pod with one container that has these variables, each a secret."""
    return {"containers": [{"name": "pytorch", "env": [{"name": name, "value": "[secret]"} for name in names]}]}


SECRET = {"kind": "Secret", "data": {"tls.crt": "[secret]", "token": "[secret]"}, "stringData": "[secret]"}
TOLD: dict[str, tuple[Any, Any, list[str], list[str]]] = {
    "a variable": (
        container("A", "B"),
        container("A", "B"),
        ["containers[0].env[1].value"],
        ["containers[pytorch].env[B].value"],
    ),
    "a key with a dot": (SECRET, SECRET, ['data["tls.crt"]'], ["data['tls.crt']"]),
    "inside of what is secret as a whole": (SECRET, SECRET, ["stringData.token", "stringData.key"], ["stringData"]),
    "a position that another variable has now": (
        container("A", "C"),
        container("A", "B", "C"),
        ["containers[0].env[1].name", "containers[0].env[1].value", "containers[0].env[2]"],
        ["containers[pytorch].env[B]"],
    ),
    "a text that is none": ({"image": "a"}, {"image": "a"}, ["image", "nowhere[7].at", "image.deeper"], []),
}


@pytest.mark.parametrize(("old", "new", "changed", "paths"), TOLD.values(), ids=TOLD.keys())
def test_a_secret_differs_where_the_engine_says_so(old: Any, new: Any, changed: list[str], paths: list[str]) -> None:
    """By the name of the variable, and nowhere else."""
    found = differences(old, told_apart(old, new, changed), keys_matter=False)

    assert [written(each.path) for each in found] == paths


def test_every_way_to_read_a_secret_is_found() -> None:
    """As a variable, as many of them, and as files."""
    pod = {
        "containers": [
            {
                "name": "pytorch",
                "env": [{"name": "HUB", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
                "envFrom": [{"secretRef": {"name": "all"}}],
            }
        ],
        "volumes": [{"name": "files", "secret": {"secretName": "certificates"}}],
        "imagePullSecrets": [{"name": "registry"}],
    }

    assert {written(path): name for path, name in named_secrets(pod)} == {
        "containers[pytorch].env[HUB].valueFrom.secretKeyRef": "hub",
        "containers[pytorch].envFrom[0].secretRef": "all",
        "volumes[files].secret": "certificates",
    }
