"""Volumes of the pods, the checkpoint volume first."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from elastic_infra.config.base import Part, require_one_of
from elastic_infra.config.values import AbsolutePath, DnsLabel, InputName, Quantity


def _is_inside(path: str) -> str:
    if path and not path.startswith("/") and ".." not in path.split("/") and len(path) <= 4096:  # noqa: PLR2004
        return path
    message = "must be a relative path without '..' (at most 4096 characters)."
    raise ValueError(message)


class Checkpoint(Part):
    """The volume for checkpoints, which survives nodes: without it a restart begins at step 0."""

    claim: InputName | None = None
    """An existing PersistentVolumeClaim, which outlives the stack."""

    size: Quantity | None = None
    """Make a claim of this size. `pulumi up` never deletes it, and refuses to change it: the claim stays in the cluster
    when the job is removed, and when `checkpoint` is removed or names another `claim`. A new job names the remaining
    claim in `claim`. For more room, expand the claim in the cluster and leave this field as it is."""

    storage_class: InputName | None = None
    """Storage class of the made claim. `pulumi up` refuses to change it."""

    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] | None = None
    """Access mode of the made claim; `pulumi up` refuses to change it. Default `ReadWriteMany` when there can be more
    than one node, so a job that may grow from one node must set it from the start."""

    mount_path: AbsolutePath = "/checkpoints"
    """Path in the container; the script gets it as `ELASTIC_INFRA_CHECKPOINT_DIR`."""

    @model_validator(mode="after")
    def _one_source(self) -> Checkpoint:
        require_one_of(self, "claim", "size")
        for name in ("storage_class", "access_mode"):
            if self.claim is not None and getattr(self, name) is not None:
                message = f"{name} goes with size; an existing claim has its own."
                raise ValueError(message)
        return self


class Volume(Part):
    """A volume of the pods: exactly one source."""

    name: DnsLabel
    """The volume's name, for `mounts`."""

    claim: InputName | None = None
    """An existing PersistentVolumeClaim."""

    secret: InputName | None = None
    """A Secret, as files."""

    configmap: InputName | None = None
    """A ConfigMap, as files."""

    empty_dir: Quantity | None = None
    """Scratch space of at most this size on the cluster node's disk."""

    host_path: AbsolutePath | None = None
    """A folder of the cluster node; needs the `baseline` profile to be lifted by the namespace as well."""

    @model_validator(mode="after")
    def _one_source(self) -> Volume:
        require_one_of(self, "claim", "secret", "configmap", "empty_dir", "host_path")
        return self


class Mount(Part):
    """A volume's place in the container."""

    volume: DnsLabel
    """Name of a volume of `storage.volumes`."""

    mount_path: AbsolutePath
    """Path in the container."""

    sub_path: Annotated[str, AfterValidator(_is_inside)] | None = None
    """A path inside the volume."""

    read_only: bool = False
    """Whether the mount refuses writes."""


class Storage(Part):
    """Volumes of the pods."""

    checkpoint: Checkpoint | None = None
    """The volume for checkpoints."""

    volumes: tuple[Volume, ...] = ()
    """Further volumes."""

    mounts: tuple[Mount, ...] = ()
    """Mounts of these volumes in the container."""
