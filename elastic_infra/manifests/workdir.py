"""Local code in the pods: a ConfigMap with the archive, and the init container that unpacks it.

The name carries the digest of the files and the ConfigMap is immutable: code never changes under a running job, and
other code is another pod.
"""

from __future__ import annotations

import base64
from typing import Final

from elastic_infra.config import ConfigError, Fault, JobConfig, Workdir, mount_paths
from elastic_infra.config.names import ObjectNames
from elastic_infra.config.workdir import Files, archive, digest, listing
from elastic_infra.manifests.init_container import init_container
from elastic_infra.manifests.metadata import metadata
from elastic_infra.manifests.model import Manifest, Value

ARCHIVE: Final = "workdir.tar.bz2"
LISTING: Final = "files"
"""Key of the list of files, which shows readers and previews what differs."""

VOLUME: Final = "workdir"
ARCHIVE_VOLUME: Final = "workdir-archive"


def workdir_config_map(name: str, config: JobConfig, workdir: Workdir) -> Manifest:
    """The immutable ConfigMap with the code."""
    files = files_of(workdir)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name, ObjectNames(name).workdir(digest(files)), config),
        "immutable": True,
        "data": {LISTING: listing(files)},
        "binaryData": {ARCHIVE: base64.b64encode(archive(files)).decode("ascii")},
    }


def files_of(workdir: Workdir) -> Files:
    """The files, which only what reads job files and programs can know.

    Raises:
        ConfigError: the folder has not been read.
    """
    if workdir.files is None:
        reason = "has not been read. Make the config by elastic_infra.config.load, or give `files`."
        raise ConfigError([Fault("workdir.path", reason)])
    return Files(workdir.files)


def workdir_volumes(name: str, workdir: Workdir) -> list[Value]:
    """Where the code is packed, and where it is unpacked."""
    archived = ObjectNames(name).workdir(digest(files_of(workdir)))
    return [{"name": VOLUME, "emptyDir": {}}, {"name": ARCHIVE_VOLUME, "configMap": {"name": archived}}]


def workdir_container(config: JobConfig, workdir: Workdir) -> Value:
    """Unpacks the code with the image's own Python; it needs neither the launcher nor a shell."""
    return init_container(
        config,
        "workdir",
        ["python3", "-I", "-m", "tarfile", "-e", f"{mount_paths.WORKDIR}/{ARCHIVE}", workdir.mount_path],
        mounts=[
            {"name": VOLUME, "mountPath": workdir.mount_path},
            {"name": ARCHIVE_VOLUME, "mountPath": mount_paths.WORKDIR, "readOnly": True},
        ],
    )
