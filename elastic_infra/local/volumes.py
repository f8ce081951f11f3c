"""The folders that stand for a pod's volumes: of the work folder, or of the user's choice. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from elastic_infra.config.errors import Fault


@dataclasses.dataclass(frozen=True)
class Volume:
    """One volume of a pod.

    Attributes:
        folder: the folder that stands for it.
        is_scratch: whether the volume belongs to one pod and is deleted with it.
        files: the first content, in base64.
    """

    folder: Path
    is_scratch: bool = False
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Folders:
    """The folders below which volumes are made.

    Attributes:
        claims: folder of claims, which outlive pods and are shared by them.
        pod: this pod's folder.
        memory: this pod's folder in memory.
        given: folders of the user's, by the name of the volume or claim.
        config_maps: ConfigMaps that were rendered with the job, by name.
    """

    claims: Path
    pod: Path
    memory: Path
    given: Mapping[str, Path]
    config_maps: Mapping[str, Mapping[str, Any]]


def volumes(spec: Mapping[str, Any], folders: Folders) -> dict[str, Volume]:
    """The volumes of a pod, by name, without those that only a cluster has (see `unknown_volumes`)."""
    found = ((volume["name"], _volume(volume, folders)) for volume in spec.get("volumes", ()))
    return {name: volume for name, volume in found if volume is not None}


def mounts(container: Mapping[str, Any], known: Mapping[str, Volume]) -> dict[str, str]:
    """Mount path to the folder that stands for it."""
    return {
        mount["mountPath"]: str(known[mount["name"]].folder / mount.get("subPath", ""))
        for mount in container.get("volumeMounts", ())
        if mount["name"] in known
    }


def unknown_volumes(spec: Mapping[str, Any], folders: Folders) -> tuple[Fault, ...]:
    """Volumes whose content only the cluster has."""
    return tuple(_unknown(spec, folders))


def _unknown(spec: Mapping[str, Any], folders: Folders) -> Iterator[Fault]:
    for volume in spec.get("volumes", ()):
        if _volume(volume, folders) is None:
            name = volume["name"]
            kind = next((_KINDS[source] for source in volume if source in _KINDS), "a volume")
            reason = f"is {kind} of the cluster. Give a folder for it with `--volume {name}=FOLDER`."
            yield Fault(f"storage.volumes.{name}", reason)


_KINDS: Final = {"configMap": "a ConfigMap", "secret": "a Secret"}


def _volume(volume: Mapping[str, Any], folders: Folders) -> Volume | None:
    name = volume["name"]
    if name in folders.given:
        return Volume(folders.given[name])
    match volume:
        case {"persistentVolumeClaim": {"claimName": claim}}:
            return Volume(folders.given.get(claim, folders.claims / claim))
        case {"hostPath": {"path": path}}:
            return Volume(Path(path))
        case {"configMap": {"name": config_map}} if config_map in folders.config_maps:
            return Volume(folders.pod / name, is_scratch=True, files=folders.config_maps[config_map]["binaryData"])
        case {"emptyDir": source}:
            return Volume((folders.memory if source.get("medium") else folders.pod) / name, is_scratch=True)
        case _:
            return None
