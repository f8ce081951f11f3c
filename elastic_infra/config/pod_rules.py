"""Rules that hold between the fields that describe the pods: security, volumes, metadata, size.

As in `rules` the functions read plain fields only, and each fault has its reason and what to do.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from elastic_infra.config import workdir
from elastic_infra.config.errors import Fault
from elastic_infra.config.mount_paths import HOME, LAUNCHER, OWN_VOLUMES, SHARED_MEMORY, TMP, WORKDIR_VOLUMES

if TYPE_CHECKING:
    from elastic_infra.config.job import JobConfig


def profile_holds(config: JobConfig) -> Iterator[Fault]:
    """The restricted profile refuses root, host paths and the capability that RDMA needs."""
    if config.security.profile != "restricted":
        return
    if config.security.run_as_user == 0:
        yield Fault(
            "security.run_as_user", "0 is root, which profile 'restricted' refuses. Use another, or profile 'baseline'."
        )
    for i, volume in enumerate(config.storage.volumes):
        if volume.host_path is not None:
            yield Fault(
                f"storage.volumes[{i}].host_path",
                "profile 'restricted' refuses host paths. Use a claim, or profile 'baseline'.",
            )
    if config.resources.rdma is not None:
        yield Fault(
            "resources.rdma",
            "adds the capability IPC_LOCK, which profile 'restricted' refuses. Use profile 'baseline'.",
        )


def devices_are_distinct(config: JobConfig) -> Iterator[Fault]:
    """A container asks for each resource, and names each claim, once."""
    gpu, rdma = config.resources.gpu, config.resources.rdma
    if gpu is not None and rdma is not None and gpu.resource_name == rdma.resource:
        yield Fault("resources.rdma.resource", f"({rdma.resource}) is the resource of resources.gpu. Choose another.")
    names = [claim.name for claim in config.resources.claims]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield Fault(f"resources.claims[{i}].name", f"({name}) is taken. Choose another.")


def hugepages_have_company(config: JobConfig) -> Iterator[Fault]:
    """Kubernetes refuses a container that asks for large pages alone."""
    asked = config.resources
    if asked.hugepages is not None and asked.cpu is None and asked.memory is None:
        yield Fault(
            "resources.hugepages",
            "needs resources.cpu or resources.memory, because Kubernetes demands one. Set one of the two.",
        )


def volume_names_are_distinct(config: JobConfig) -> Iterator[Fault]:
    """Volumes have different names, and each mount names a volume."""
    names = [volume.name for volume in config.storage.volumes]
    own = OWN_VOLUMES | {each.volume for each in config.initializers}
    own |= WORKDIR_VOLUMES if config.workdir else set()
    for i, name in enumerate(names):
        if name in names[:i] or name in own:
            yield Fault(f"storage.volumes[{i}].name", f"({name}) is taken. Choose another.")
    for i, mount in enumerate(config.storage.mounts):
        if mount.volume not in names:
            yield Fault(f"storage.mounts[{i}].volume", f"({mount.volume}) names no volume of storage.volumes.")


def mount_paths_are_distinct(config: JobConfig) -> Iterator[Fault]:
    """Each path is mounted once, and the image's root never."""
    taken = {"/", *_own_paths(config)}
    fetched = [(f"initializers[{i}].path", each.path) for i, each in enumerate(config.initializers)]
    for field, path in [*_given_paths(config), *fetched]:
        place = posixpath.normpath(f"/{path.lstrip('/')}")
        if place in taken:
            yield Fault(field, f"({place}) is taken. Choose another.")
        taken.add(place)


def paths_with_a_mount(config: JobConfig) -> frozenset[str]:
    """Paths that certainly have a mount of their own, as the pod spells them.

    The launcher's may be that of a file, and an initializer's may lie in another mount.
    """
    return frozenset({*_own_paths(config), *(path for _, path in _given_paths(config))} - {LAUNCHER})


def _given_paths(config: JobConfig) -> Iterator[tuple[str, str]]:
    if config.workdir:
        yield "workdir.mount_path", config.workdir.mount_path
    if config.storage.checkpoint:
        yield "storage.checkpoint.mount_path", config.storage.checkpoint.mount_path
    for i, mount in enumerate(config.storage.mounts):
        yield f"storage.mounts[{i}].mount_path", mount.mount_path


def _own_paths(config: JobConfig) -> Iterator[str]:
    yield HOME
    if config.shared_memory.enabled:
        yield SHARED_MEMORY
    if config.security.read_only_root:
        yield TMP
    if config.launcher.delivery == "configmap":
        yield LAUNCHER


def workdir_is_code(config: JobConfig) -> Iterator[Fault]:
    """The files of `workdir` fit into a ConfigMap, and none looks like a secret."""
    given = config.workdir
    if given is None:
        return
    if given.path is None and given.files is None:
        yield Fault("workdir", "needs a path. Name the folder with the code.")
    for path, reason in workdir.faults(given.files) if given.files is not None else ():
        yield Fault(f"workdir.files[{path!r}]" if path else "workdir.path", reason)


def own_metadata_is_kept(config: JobConfig) -> Iterator[Fault]:
    """Users cannot set labels by which the operator, a queue or this package find their objects."""
    for kind in ("labels", "annotations"):
        for key in getattr(config, kind):
            if instead := KUEUE_KEYS.get(key):
                yield Fault(f"{kind}.{key}", f"tells Kueue what {instead} tells it. Set {instead} instead.")
            elif is_own_key(key):
                yield Fault(f"{kind}.{key}", "is set by the operator or this package. Choose another key.")


def job_controller_labels_are_kept(config: JobConfig) -> Iterator[Fault]:
    """The API server labels the pods of a batch/v1 Job, and refuses a Job whose template says otherwise."""
    if config.kind == "PyTorchJob":
        return
    metadata = config.overlays.pod.get("metadata")
    overlaid = metadata.get("labels") if isinstance(metadata, dict) else None
    for path, labels in (("labels", config.labels), ("overlays.pod.metadata.labels", overlaid)):
        for key in sorted(_JOB_LABELS & labels.keys() if isinstance(labels, dict) else ()):
            yield Fault(f"{path}.{key}", "is set by the API server on the pods of a batch/v1 Job. Choose another key.")


_JOB_LABELS: Final = frozenset(
    {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
)
"""https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/apis/batch/validation/validation.go"""


def is_own_key(key: str) -> bool:
    """Whether a label or annotation is the operator's, a queue's or this package's."""
    return key in _OWN_KEYS or key in KUEUE_KEYS or key.startswith(_OWN_PREFIXES)


_OWN_KEYS: Final = frozenset(
    {
        "app.kubernetes.io/component",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "karpenter.sh/do-not-disrupt",
        "sidecar.istio.io/inject",
    }
)
_OWN_PREFIXES: Final = (
    "elastic-infra/",
    "jobset.sigs.k8s.io/",
    "pulumi.com/",
    "trainer.kubeflow.org/",
    "training.kubeflow.org/",
)

KUEUE_KEYS: Final = {
    "kueue.x-k8s.io/queue-name": "placement.queue",
    "kueue.x-k8s.io/priority-class": "placement.kueue.priority_class",
    "kueue.x-k8s.io/elastic-job": "placement.kueue.mode",
    "kueue.x-k8s.io/job-min-parallelism": "placement.kueue.mode",
    "kueue.x-k8s.io/job-completions-equal-parallelism": "placement.kueue.mode",
}
"""What a workload tells Kueue, and the fields that say it:
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/controller/jobframework"""


def list_keys_are_distinct(config: JobConfig) -> Iterator[Fault]:
    """Lists that Kubernetes reads as maps have each key once."""
    secrets = [secret for secret in config.image_pull_secrets if isinstance(secret, str)]
    if len(secrets) > len(set(secrets)):
        yield Fault("image_pull_secrets", "names a Secret twice. Remove one of the two.")
    spreads = [(spread.topology_key, spread.when_unsatisfiable) for spread in config.placement.topology_spread]
    if len(spreads) > len(set(spreads)):
        yield Fault("placement.topology_spread", "has a topology_key twice for one when_unsatisfiable. Remove one.")


def small_enough(config: JobConfig) -> Iterator[Fault]:
    """The API server refuses a manifest beyond etcd's request limit, and annotations beyond 256 KiB."""
    texts = (*config.args, *config.command, *(variable.value for variable in config.env.values()))
    for path, values in (("env", texts), ("annotations", config.annotations.values())):
        size = sum(len(value.encode()) for value in values if isinstance(value, str))
        if size > MAX_TEXT_BYTES:
            what = "env, command and args hold" if path == "env" else "hold"
            yield Fault(path, f"{what} {size} bytes; the limit is {MAX_TEXT_BYTES}. Mount a file instead.")


MAX_TEXT_BYTES: Final = 200 * 1024
"""Kubernetes' 256 KiB for all annotations, less what others add."""

RULES: Final[tuple[Callable[[JobConfig], Iterator[Fault]], ...]] = (
    profile_holds,
    devices_are_distinct,
    hugepages_have_company,
    volume_names_are_distinct,
    mount_paths_are_distinct,
    workdir_is_code,
    own_metadata_is_kept,
    job_controller_labels_are_kept,
    list_keys_are_distinct,
    small_enough,
)
