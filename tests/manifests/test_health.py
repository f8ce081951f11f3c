"""The init container that looks at the cluster node."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.launcher import health
from elastic_infra.manifests.health import MODULE
from tests import jobs

TARGETS = {"pytorchjob": jobs.elastic, "job": jobs.indexed, "single": jobs.job, "trainjob": jobs.train_job}


def container(target: str = "pytorchjob", **fields: Any) -> dict[str, Any]:
    """The first init container of a job."""
    found: dict[str, Any] = jobs.pod_spec(TARGETS[target](**{"health_check": True, **fields}))["initContainers"][0]
    return found


def options(**fields: Any) -> str:
    """What the check is asked for."""
    _, text = " ".join(container(**fields)["command"]).split(f"{MODULE} ")
    return text


@pytest.mark.parametrize("target", TARGETS)
def test_every_workload_is_checked_before_its_code_is_unpacked(target: str) -> None:
    """With the devices, volumes, variables and the user of the training container, and no larger than that."""
    fields = {"resources": {"gpu": 8, "cpu": 4}, "env": {"NCCL_DEBUG": "INFO"}, "workdir": {"files": {"a.py": ""}}}
    config = TARGETS[target](health_check={"disk": "10Gi"}, **fields)
    first, second = jobs.pod_spec(config)["initContainers"]
    names = [each["name"] for each in first["env"]]

    assert (first["name"], second["name"]) == ("health", "workdir")
    assert first["resources"] == jobs.container(config)["resources"]
    assert first["volumeMounts"] == jobs.container(config)["volumeMounts"]
    assert first["image"] == jobs.container(config)["image"]
    assert {"name": "PYTHONPATH", "value": "/opt/elastic-infra/launcher.zip"} in first["env"]
    assert {"NCCL_DEBUG", "HOME", "ELASTIC_INFRA_CLUSTER_NODE"} <= {*names}
    assert len(names) == len({*names})
    assert not any(name.startswith("PET_") for name in names)


def test_what_is_asked_for_follows_from_the_resources() -> None:
    """And is what the program takes."""
    storage = {"checkpoint": {"claim": "c", "mount_path": "/save"}}
    asked = options(health_check={"disk": "10Gi"}, resources={"gpu": 8}, storage=storage)

    assert asked == f"--timeout 300 --gpus 8 --nccl --disk {10 * 2**30} /save /home/elastic"
    assert health.__name__ == MODULE


@pytest.mark.parametrize(
    ("resources", "check", "asked"),
    [
        ({}, True, "--timeout 300 /home/elastic"),
        ({"gpu": 1}, True, "--timeout 300 --gpus 1 /home/elastic"),
        ({"gpu": {"count": 4, "vendor": "amd"}}, True, "--timeout 300 --gpus 4 --nccl /home/elastic"),
        ({"gpu": {"count": 4, "vendor": "intel"}}, True, "--timeout 300 --gpus 4 /home/elastic"),
        ({"gpu": {"count": 4, "vendor": "google"}}, True, "--timeout 300 /home/elastic"),
        ({"gpu": {"count": 2, "resource": "nvidia.com/mig-1g.10gb"}}, True, "--timeout 300 /home/elastic"),
        ({"gpu": 8}, {"nccl": False}, "--timeout 300 --gpus 8 /home/elastic"),
        ({"gpu": 8}, {"nccl": False, "gpus": False}, "--timeout 300 /home/elastic"),
        ({"gpu": 8}, {"timeout_seconds": 60}, "--timeout 60 --gpus 8 --nccl /home/elastic"),
    ],
)
def test_only_what_can_be_counted_is(resources: dict[str, Any], check: Any, asked: str) -> None:
    """A part of a GPU is no device of CUDA's own, and torch knows no TPUs."""
    assert options(resources=resources, health_check=check) == asked
    devices = container(resources=resources, health_check=check).get("resources")
    assert bool(devices) == ("--gpus" in asked)


def test_an_image_with_its_own_launcher_has_the_check() -> None:
    """No path of a mounted one is named."""
    names = [each["name"] for each in container(launcher={"delivery": "image"})["env"]]

    assert "PYTHONPATH" not in names


def test_nothing_is_checked_unless_it_is_asked_for() -> None:
    """`false` says what is the default."""
    assert "initContainers" not in jobs.pod_spec(jobs.elastic(health_check=False))
    assert jobs.elastic(health_check=False) == jobs.elastic()
