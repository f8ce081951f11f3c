"""The form of a patch of a pod template: what the merge, and the readers of the merged pod, rely on.

Kubernetes checks the rest when the pod is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from elastic_infra.config.errors import Fault
from elastic_infra.config.values import any_quantity

DIRECTIVE: Final = "$patch"
"""An item of a list with ``$patch: delete`` removes the item with its key, as in ``kubectl patch``."""

MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""``patchMergeKey`` of each list below core/v1 PodTemplateSpec that Kubernetes merges; all others are replaced.
https://github.com/kubernetes/api/blob/v0.34.0/core/v1/types.go"""

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
"""Lists of containers in a pod's spec."""


def form_faults(path: str, pod: dict[str, JsonValue], own: str, mounted: Collection[str]) -> Iterator[Fault]:
    """What would not merge, or would end in a pod that cannot be read.

    Args:
        path: of the patch.
        pod: the patch.
        own: name of the training container.
        mounted: paths in it that have a mount already, which a patch can change without the volume's name.
    """
    yield from _directives(path, pod, is_item=False)
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    for kind in ("labels", "annotations"):
        yield from _texts(f"{path}.metadata.{kind}", metadata.get(kind, {}))
    yield from _lists(f"{path}.spec", spec)
    for place, volume in _items(f"{path}.spec", spec, "volumes"):
        yield from _sources(place, {key: value for key, value in volume.items() if key != "name"})
    for kind in CONTAINERS:
        for place, container in _items(f"{path}.spec", spec, kind):
            has_mounts = kind == "containers" and container.get("name") == own
            yield from _container(place, container, mounted if has_mounts else ())


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    """The value where it is a mapping, and an empty one for any other."""
    return value if isinstance(value, Mapping) else {}


def _directives(path: str, value: JsonValue, *, is_item: bool) -> Iterator[Fault]:
    """Keys of `kubectl patch` other than the one that is followed here; the others would be sent to the cluster."""
    for key, inner in mapping(value).items():
        place = f"{path}.{key}"
        if not key.startswith("$"):
            items = inner if isinstance(inner, list) else ()
            yield from _directives(place, inner, is_item=False)
            for index, each in enumerate(items):
                yield from _directives(f"{place}[{index}]", each, is_item=key in MERGE_KEYS)
        elif not (is_item and key == DIRECTIVE and inner == "delete"):
            yield Fault(
                place,
                "is a directive that overlays do not follow: they have only `$patch: delete`, on an item of a list "
                f"that is merged by a key ({', '.join(MERGE_KEYS)}). Set what is to change, and what is to go to null.",
            )


def _texts(path: str, values: JsonValue) -> Iterator[Fault]:
    if not isinstance(values, Mapping):
        yield Fault(
            path, "must be a mapping: null would take out this package's keys too. Set each that is to go to null."
        )
    for key, value in mapping(values).items():
        if value is not None:
            yield from _text(f"{path}.{key}", value)


def _text(path: str, value: JsonValue) -> Iterator[Fault]:
    if not isinstance(value, str):
        yield Fault(path, "must be text, which is all that Kubernetes takes here. Quote a number, true or false.")


def _lists(path: str, part: Mapping[str, JsonValue]) -> Iterator[Fault]:
    """Every list that is merged has mappings with its key; null takes the list out."""
    for name, value in part.items():
        if name not in MERGE_KEYS:
            continue
        key, place = MERGE_KEYS[name], f"{path}.{name}"
        if value is not None and not isinstance(value, list):
            yield Fault(place, "must be a list, as in a pod.")
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if not _has_key(item, key):
                kind = "number" if key == "containerPort" else "text"
                yield Fault(f"{place}[{index}]", f"must be a mapping with {key} ({kind}), by which items are merged.")


def _has_key(item: JsonValue, key: str) -> bool:
    found = mapping(item).get(key)
    return isinstance(found, int) if key == "containerPort" else isinstance(found, str) and found != ""


def _items(path: str, part: Mapping[str, JsonValue], name: str) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
    """Place and content of each mapping in a list, but for those that only take an item out."""
    found = part.get(name)
    for index, each in enumerate(found if isinstance(found, list) else ()):
        if isinstance(each, Mapping) and DIRECTIVE not in each:
            yield f"{path}.{name}[{index}]", each


def _container(path: str, container: Mapping[str, JsonValue], mounted: Collection[str]) -> Iterator[Fault]:
    yield from _lists(path, container)
    for place, variable in _items(path, container, "env"):
        if variable.get("value") is not None:
            yield from _text(f"{place}.value", variable["value"])
        yield from _sources(place, {"valueFrom": variable.get("valueFrom")})
        sources = mapping(variable.get("valueFrom"))
        yield from _sources(f"{place}.valueFrom", sources)
        if "fieldRef" in sources:
            yield from _text(f"{place}.valueFrom.fieldRef.fieldPath", mapping(sources["fieldRef"]).get("fieldPath"))
    for place, mount in _items(path, container, "volumeMounts"):
        if mount.get("mountPath") not in mounted or "name" in mount:
            yield from _text(f"{place}.name", mount.get("name"))
        if mount.get("subPath") is not None:
            yield from _text(f"{place}.subPath", mount["subPath"])
    yield from _variables_of(f"{path}.envFrom", container.get("envFrom"))
    yield from _amounts(f"{path}.resources", container.get("resources"))


def _variables_of(path: str, sources: JsonValue) -> Iterator[Fault]:
    if sources is not None and not isinstance(sources, list):
        yield Fault(path, "must be a list, as in a pod.")
    for index, each in enumerate(sources if isinstance(sources, list) else ()):
        found = mapping(each)
        named = [mapping(found[key]).get("name") for key in ("configMapRef", "secretRef") if key in found]
        if not named or not all(isinstance(name, str) and name for name in named):
            yield Fault(f"{path}[{index}]", "must be a mapping with configMapRef or secretRef, and the name in it.")


def _amounts(path: str, resources: JsonValue) -> Iterator[Fault]:
    yield from _sources(path.rpartition(".")[0], {"resources": resources})
    found = mapping(resources)
    kinds = {kind: found.get(kind) for kind in ("limits", "requests")}
    yield from _sources(path, kinds)
    for kind, amounts in kinds.items():
        for name, amount in mapping(amounts).items():
            if amount is not None and any_quantity(amount) is None:
                yield Fault(f"{path}.{kind}.{name}", "must be a Kubernetes quantity such as '500m', 64 or '16Gi'.")


def _sources(path: str, values: Mapping[str, JsonValue]) -> Iterator[Fault]:
    for key, value in values.items():
        if value is not None and not isinstance(value, Mapping):
            yield Fault(f"{path}.{key}", "must be a mapping, as in a pod.")
