"""Volumes and mounts come in pairs; /dev/shm is what data loaders and NCCL need."""

from __future__ import annotations

from typing import Any

import pytest

from tests import jobs


def _pair(config: Any, name: str) -> tuple[Any, Any]:
    pod = jobs.pod_spec(config)
    volumes = [volume for volume in pod["volumes"] if volume["name"] == name]
    mounts = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == name]
    return next(iter(volumes), None), next(iter(mounts), None)


@pytest.mark.parametrize(
    ("given", "empty_dir"),
    [
        (True, {"medium": "Memory"}),
        ({}, {"medium": "Memory"}),
        ({"size": "1Gi"}, {"medium": "Memory", "sizeLimit": "1Gi"}),
        (False, None),
        ({"enabled": False}, None),
    ],
)
def test_shared_memory(given: object, empty_dir: dict[str, str] | None) -> None:
    """On by default, bounded by the memory limit unless a size is given."""
    volume, mount = _pair(jobs.job(shared_memory=given, resources={"memory": "2Gi"}), "shm")

    assert volume == (None if empty_dir is None else {"name": "shm", "emptyDir": empty_dir})
    assert mount == (None if empty_dir is None else {"name": "shm", "mountPath": "/dev/shm"})


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ({"claim": "c"}, {"persistentVolumeClaim": {"claimName": "c"}}),
        ({"secret": "s"}, {"secret": {"secretName": "s"}}),
        ({"configmap": "m"}, {"configMap": {"name": "m"}}),
        ({"empty_dir": "1Gi"}, {"emptyDir": {"sizeLimit": "1Gi"}}),
        ({"host_path": "/data"}, {"hostPath": {"path": "/data"}}),
    ],
)
def test_each_kind_of_volume(source: dict[str, str], rendered: dict[str, Any]) -> None:
    """And its place in the container."""
    mount = {"volume": "data", "mount_path": "/mnt", "sub_path": "a", "read_only": True}
    config = jobs.job(
        storage={"volumes": [{"name": "data", **source}], "mounts": [mount]}, security={"profile": "baseline"}
    )

    assert _pair(config, "data") == (
        {"name": "data", **rendered},
        {"name": "data", "mountPath": "/mnt", "subPath": "a", "readOnly": True},
    )


@pytest.mark.parametrize(
    ("nnodes", "given", "spec"),
    [
        (1, {"size": "1Gi"}, {"accessModes": ["ReadWriteOnce"]}),
        ("1:2", {"size": "1Gi"}, {"accessModes": ["ReadWriteMany"]}),
        (
            2,
            {"size": "1Gi", "access_mode": "ReadWriteOnce", "storage_class": "fast"},
            {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
        ),
    ],
)
def test_a_claim_is_made_for_checkpoints(nnodes: object, given: dict[str, str], spec: dict[str, Any]) -> None:
    """Shared as soon as there can be two nodes; not awaited, since many classes bind only when a pod comes."""
    config = jobs.job(elastic={"nnodes": nnodes}, storage={"checkpoint": given})
    claim = jobs.objects(config)["checkpoint"]

    assert claim["spec"] == {**spec, "resources": {"requests": {"storage": "1Gi"}}}
    assert claim["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    assert _pair(config, "checkpoint") == (
        {"name": "checkpoint", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}},
        {"name": "checkpoint", "mountPath": "/checkpoints"},
    )


def test_a_claim_that_is_there_is_only_used() -> None:
    """It outlives the stack."""
    config = jobs.job(storage={"checkpoint": {"claim": "mine", "mount_path": "/save"}})

    assert "checkpoint" not in jobs.objects(config)
    assert _pair(config, "checkpoint") == (
        {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "mine"}},
        {"name": "checkpoint", "mountPath": "/save"},
    )


@pytest.mark.parametrize(("read_only", "volume"), [(True, {"name": "tmp", "emptyDir": {}}), (False, None)])
def test_a_read_only_image_still_has_scratch_space(read_only: bool, volume: object) -> None:  # noqa: FBT001 - a case
    """/tmp and HOME stay writable."""
    config = jobs.job(security={"read_only_root": read_only})

    assert _pair(config, "tmp")[0] == volume
    assert _pair(config, "home")[0] == {"name": "home", "emptyDir": {}}
    assert jobs.container(config)["securityContext"].get("readOnlyRootFilesystem", False) is read_only


@pytest.mark.parametrize(
    ("checkpoint", "says"),
    [
        ({}, "exactly one of claim, size"),
        ({"claim": "c", "size": "1Gi"}, "exactly one of claim, size"),
        ({"claim": "c", "storage_class": "fast"}, "storage_class goes with size"),
    ],
)
def test_a_checkpoint_volume_has_one_source(checkpoint: dict[str, str], says: str) -> None:
    """A claim or a size, and what belongs to it."""
    with pytest.raises(ValueError, match=says):
        jobs.job(storage={"checkpoint": checkpoint})
