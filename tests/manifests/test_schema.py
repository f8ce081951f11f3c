"""Whatever is rendered has the shape that a real API server asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from elastic_infra import JobConfig, render
from tests import jobs, kubernetes_schema, strategies


@pytest.fixture(scope="module", autouse=True)
def _schemas() -> None:
    try:
        kubernetes_schema.load()
    except kubernetes_schema.SchemasMissing as error:
        pytest.skip(str(error))


@given(strategies.JOB_NAMES, strategies.job_configs())
def test_every_valid_config_renders_to_what_the_schemas_allow(name: str, data: strategies.Data) -> None:
    """No unknown field, no wrong type, no list key twice, in no object of any valid config."""
    manifests = render(name, JobConfig.from_mapping(data))

    faults = [(role, fault) for role, manifest in manifests.objects() for fault in kubernetes_schema.faults(manifest)]

    assert not faults


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"env": [{"name": "A"}, {"name": "A"}]}, "env[1]: is given twice"),
        ({"env": [{"name": "A", "value": 1}]}, "env[0].value: is int, not string"),
        ({"env": [{"value": "1"}]}, "env[0].name: is required"),
        ({"comand": ["sh"]}, "comand: is unknown"),
        ({"ports": [{"containerPort": 2**31}]}, "ports[0].containerPort: does not fit int32"),
        ({"resources": {"limits": {"cpu": "many"}}}, "resources.limits.cpu: does not match"),
        ({"resources": {"limits": {"cpu": True}}}, "resources.limits.cpu: is bool, not a number or a string"),
        ({"stdin": "yes"}, "stdin: is str, not boolean"),
    ],
)
def test_the_reader_of_schemas_finds(change: dict[str, Any], fault: str) -> None:
    """The check can fail: each kind of mistake in a PyTorchJob is found where it is."""
    workload = jobs.objects(jobs.elastic())["workload"]
    workload["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(change)

    (found,) = kubernetes_schema.faults(workload)

    assert f"containers[0].{fault}" in found


def test_native_objects_are_read_as_strictly() -> None:
    """An unknown field deep inside a Deployment is found, too."""
    store = jobs.objects(jobs.elastic())["store"]
    store["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["path"] = "/"

    assert kubernetes_schema.faults(store) == [".spec.template.spec.containers[0].volumeMounts[0].path: is unknown"]
