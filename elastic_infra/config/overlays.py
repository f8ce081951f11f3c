"""Overlays: patches for parts of Kubernetes objects that the config has no field for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from elastic_infra.config.base import Part
from elastic_infra.config.env import reserved
from elastic_infra.config.errors import Fault
from elastic_infra.config.pod_patch import DIRECTIVE, form_faults, mapping
from elastic_infra.config.pod_rules import is_own_key, paths_with_a_mount

if TYPE_CHECKING:
    from elastic_infra.config.job import JobConfig

TRAINING_CONTAINER: Final = "pytorch"
"""Name of the training container, by which the operator finds it."""

TRAIN_CONTAINER: Final = "node"
"""The same in the pods of a TrainJob:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainingruntime_webhook.go"""


class Overlays(Part):
    """Patches of the rendered objects, merged as `kubectl patch` merges."""

    pod: dict[str, JsonValue] = {}
    """Patch of the template of every training pod (core/v1 PodTemplateSpec, verbatim): mappings are merged by key,
    lists by Kubernetes' own keys, null deletes. The training container is `pytorch`, also where a TrainJob's pod calls
    the container `node`. Identity cannot be overlaid. A change restarts the job, as any change of its pods."""


def overlays_keep_identity(config: JobConfig) -> Iterator[Fault]:
    """An overlay must not change what the launcher, the operator and other objects rely on."""
    pod = config.overlays.pod
    for key in pod.keys() - {"metadata", "spec"}:
        yield Fault(f"overlays.pod.{key}", "is no part of a pod template, which has metadata and spec.")
    for part in ("metadata", "spec"):
        if not isinstance(pod.get(part, {}), Mapping):
            yield Fault(f"overlays.pod.{part}", "must be a mapping, as in a pod template.")
            return
    yield from _metadata_faults(mapping(pod.get("metadata")))
    spec = mapping(pod.get("spec"))
    for key in spec.keys() & _FIELDS.keys():
        yield Fault(f"overlays.pod.spec.{key}", _FIELDS[key])
    yield from _emptied("overlays.pod.spec", spec, ("initContainers", "volumes"))
    yield from _container_faults(spec.get("containers", []))
    if config.kind == "TrainJob" and TRAIN_CONTAINER in _names(spec.get("containers", [])):
        yield Fault(
            "overlays.pod.spec.containers",
            f"has a container {TRAIN_CONTAINER!r}, the name of the training container in a TrainJob. Call the training "
            f"container {TRAINING_CONTAINER!r} here, and another container by another name.",
        )


def overlays_can_be_merged(config: JobConfig) -> Iterator[Fault]:
    """An overlay has the form of a pod's template, so that it merges, and the pod can be read."""
    yield from form_faults("overlays.pod", config.overlays.pod, TRAINING_CONTAINER, paths_with_a_mount(config))


def _metadata_faults(metadata: Mapping[str, JsonValue]) -> Iterator[Fault]:
    for kind, given in metadata.items():
        path = f"overlays.pod.metadata.{kind}"
        if kind not in {"labels", "annotations"}:
            yield Fault(path, "is set by the operator or Kubernetes. Only labels and annotations can be overlaid.")
        for key in mapping(given):
            if is_own_key(key):
                yield Fault(f"{path}.{key}", "is set by the operator or this package. Choose another key.")


def _container_faults(containers: JsonValue) -> Iterator[Fault]:
    path = "overlays.pod.spec.containers"
    if not isinstance(containers, Sequence) or isinstance(containers, str):
        yield Fault(path, "must be a list; without the training container no pod trains.")
        return
    for index, each in enumerate(containers):
        container = mapping(each)
        if container.get("name") == TRAINING_CONTAINER:
            yield from _training_faults(f"{path}[{index}]", container)


def _training_faults(path: str, container: Mapping[str, JsonValue]) -> Iterator[Fault]:
    if DIRECTIVE in container:
        yield Fault(f"{path}.{DIRECTIVE}", "would take out the training container. Remove it.")
    yield from _emptied(path, container, ("env", "ports", "volumeMounts"))
    for key in container.keys() & {"command", "args", "image"}:
        yield Fault(f"{path}.{key}", "is made from image, script, module, command and args. Use these fields.")
    variables = container.get("env", [])
    for each in variables if isinstance(variables, list) else ():
        name = mapping(each).get("name")
        if isinstance(name, str) and reserved(name):
            yield Fault(f"{path}.env.{name}", "is set by the operator, torch or the launcher. Remove it.")


def _emptied(path: str, part: Mapping[str, JsonValue], lists: Iterable[str]) -> Iterator[Fault]:
    """Lists in which this package has items without which the job does not train."""
    for name in lists:
        if part.get(name, ()) is None:
            reason = f"would take out this package's items too. Give each item that is to go `{DIRECTIVE}: delete`."
            yield Fault(f"{path}.{name}", reason)


def _names(containers: JsonValue) -> set[JsonValue]:
    found = (mapping(each).get("name") for each in containers) if isinstance(containers, list) else ()
    return {name for name in found if isinstance(name, str)}


_FIELDS: Final[Mapping[str, str]] = {
    "hostname": "is set by the operator, and nodes find each other by it.",
    "restartPolicy": "is chosen with the workload, and the launcher's exit codes with it.",
    "subdomain": "is set by the operator, and nodes find each other by it.",
    "terminationGracePeriodSeconds": "sets the launcher's own grace. Use disruption.termination_grace_period_seconds.",
}
"""Fields of a pod that cannot be overlaid, and why."""
