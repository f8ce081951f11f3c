"""Volumes with their mounts, made together so that neither exists without the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from elastic_infra.config import Checkpoint, JobConfig, Volume, mount_paths
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.values import Late
from elastic_infra.manifests.initializers import is_shared
from elastic_infra.manifests.launcher import ARCHIVE, MOUNTED
from elastic_infra.manifests.metadata import SKIP_AWAIT, metadata
from elastic_infra.manifests.model import Manifest, Value, without_none
from elastic_infra.manifests.workdir import VOLUME, workdir_volumes


@dataclasses.dataclass(frozen=True)
class Mounted:
    """Some of a pod's volumes, with their mounts in the training container."""

    volumes: tuple[Value, ...]
    mounts: tuple[Value, ...]


def mounted(name: str, config: JobConfig, launcher: str | Late | None) -> Mounted:
    """Every volume of a training pod.

    Args:
        launcher: name of the launcher's ConfigMap, None when the image has the launcher.
    """
    parts = tuple(_parts(name, config, launcher))
    return Mounted(
        volumes=tuple(volume for part in parts for volume in part.volumes),
        mounts=tuple(mount for part in parts for mount in part.mounts),
    )


def _parts(name: str, config: JobConfig, launcher: str | Late | None) -> Iterator[Mounted]:
    if config.shared_memory.enabled:
        yield shared_memory(config)
    yield _one("home", {"emptyDir": {}}, {"mountPath": mount_paths.HOME})
    if config.security.read_only_root:
        yield _one("tmp", {"emptyDir": {}}, {"mountPath": mount_paths.TMP})
    if launcher is not None:
        yield launcher_volume(config, launcher)
    if config.workdir is not None:
        mount: dict[str, Value] = {"name": VOLUME, "mountPath": config.workdir.mount_path}
        yield Mounted(volumes=tuple(workdir_volumes(name, config.workdir)), mounts=(mount,))
    if config.storage.checkpoint is not None:
        yield _checkpoint(name, config.storage.checkpoint)
    yield _extra(config)
    for each in config.initializers:
        if not is_shared(config, each):
            yield _one(each.volume, {"emptyDir": {}}, {"mountPath": each.path})


def _one(name: str, source: dict[str, Value], mount: dict[str, Value]) -> Mounted:
    return Mounted(volumes=({"name": name, **source},), mounts=({"name": name, **mount},))


def shared_memory(config: JobConfig) -> Mounted:
    """Shared memory; without a limit the kubelet bounds it by the containers' memory limits."""
    empty_dir = without_none(medium="Memory", sizeLimit=config.shared_memory.size)
    return _one("shm", {"emptyDir": empty_dir}, {"mountPath": mount_paths.SHARED_MEMORY})


LAUNCHER_VOLUME: Final = "launcher"


def launcher_volume(config: JobConfig, config_map: str | Late) -> Mounted:
    """The launcher's zip, read-only.

    One that is verified is mounted as a file, which stays as it is while its container lives; the files of a folder
    follow the ConfigMap, if one that can change has taken the place of the immutable one:
    https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically
    """
    folder: dict[str, Value] = {"mountPath": mount_paths.LAUNCHER, "readOnly": True}
    file: dict[str, Value] = {"mountPath": MOUNTED, "subPath": ARCHIVE, "readOnly": True}
    return _one(LAUNCHER_VOLUME, {"configMap": {"name": config_map}}, file if config.launcher.verify else folder)


def _checkpoint(name: str, checkpoint: Checkpoint) -> Mounted:
    claim = checkpoint.claim if checkpoint.claim is not None else ObjectNames(name).checkpoint
    source: dict[str, Value] = {"persistentVolumeClaim": {"claimName": claim}}
    return _one("checkpoint", source, {"mountPath": checkpoint.mount_path})


def _extra(config: JobConfig) -> Mounted:
    mounts = tuple(
        without_none(name=m.volume, mountPath=m.mount_path, subPath=m.sub_path, readOnly=m.read_only or None)
        for m in config.storage.mounts
    )
    return Mounted(volumes=tuple(_source(v) for v in config.storage.volumes), mounts=mounts)


def _source(volume: Volume) -> Value:
    named: dict[str, Value] = {"name": volume.name}
    if volume.claim is not None:
        return {**named, "persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.secret is not None:
        return {**named, "secret": {"secretName": volume.secret}}
    if volume.configmap is not None:
        return {**named, "configMap": {"name": volume.configmap}}
    if volume.empty_dir is not None:
        return {**named, "emptyDir": {"sizeLimit": volume.empty_dir}}
    return {**named, "hostPath": {"path": volume.host_path}}


def checkpoint_claim(name: str, config: JobConfig, checkpoint: Checkpoint) -> Manifest:
    """The claim made for checkpoints. Pulumi does not await it, because many storage classes bind only for a pod."""
    mode = checkpoint.access_mode or ("ReadWriteMany" if config.elastic.max_nodes > 1 else "ReadWriteOnce")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(name, ObjectNames(name).checkpoint, config, SKIP_AWAIT),
        "spec": without_none(
            accessModes=[mode],
            storageClassName=checkpoint.storage_class,
            resources={"requests": {"storage": checkpoint.size}},
        ),
    }
