"""Reads a pod template as fields of the config; what has no field is left to an overlay."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from elastic_infra.config.env import RESERVED, reserved
from elastic_infra.config.mount_paths import SHARED_MEMORY
from elastic_infra.config.overlays import TRAINING_CONTAINER
from elastic_infra.config.resources import VENDOR_RESOURCES
from elastic_infra.config.rules import GRACE_RESERVE_SECONDS
from elastic_infra.config.runtime import Runtime
from elastic_infra.config.values import any_quantity
from elastic_infra.importing.plain import REFERENCE, with_one_each

Data = dict[str, Any]

OWN_VOLUMES: Final = frozenset({"checkpoint", "home", "launcher", "shm", "tmp"})
"""Volumes that this package makes; another pod's of these names are renamed."""


def normalized(template: Mapping[str, Any]) -> tuple[Data, tuple[str, ...]]:
    """The template with the names that this package gives, and what was renamed."""
    spec = dict(template.get("spec") or {})
    containers = [dict(each) for each in spec.get("containers") or ()]
    notes = []
    if containers and all(each.get("name") != TRAINING_CONTAINER for each in containers):
        notes.append(f"renames the container {containers[0].get('name')} to {TRAINING_CONTAINER}.")
        containers[0]["name"] = TRAINING_CONTAINER
    spec["containers"] = containers
    names = {each.get("name") for each in spec.get("volumes") or ()} & OWN_VOLUMES
    notes += [f"renames the volume {name} to {name}-own: this package has one of that name." for name in sorted(names)]
    renamed, lost = with_one_each({key: _renamed(key, value, names) for key, value in spec.items()}, "spec")
    notes += [f"drops all but the first {place}: nothing here tells items of one key apart." for place in lost]
    return {"metadata": dict(template.get("metadata") or {}), "spec": renamed}, tuple(notes)


def _renamed(key: str, value: Any, names: Collection[str]) -> Any:  # noqa: ANN401 - JSON
    """A part of a pod with other names for some volumes."""
    if key in {"volumes", "volumeMounts"}:
        return [{**each, "name": f"{each['name']}-own"} if each.get("name") in names else each for each in value or ()]
    if key in {"containers", "initContainers"}:
        return [{name: _renamed(name, part, names) for name, part in each.items()} for each in value or ()]
    return value


def with_variables(template: Mapping[str, Any], env: Mapping[str, str]) -> Data:
    """The template whose training container has these variables too, and in place of others of their names."""
    own = training_container(template)
    kept = [each for each in own.get("env") or () if each.get("name") not in env]
    added = [{"name": name, "value": value} for name, value in env.items()]
    changed = {**own, **_some(env=[*kept, *added])}
    containers = [changed if each is own else each for each in template["spec"]["containers"]]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def training_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container that trains; empty where there is none."""
    containers = template["spec"].get("containers") or ()
    return next((each for each in containers if each.get("name") == TRAINING_CONTAINER), {})


def fields(template: Mapping[str, Any]) -> Data:
    """Fields of the config that a normalized template gives, but for what it runs."""
    spec, container = template["spec"], training_container(template)
    mounts, volumes = _storage(spec, container)
    found: Data = {
        "image": container.get("image"),
        "image_pull_policy": container.get("imagePullPolicy"),
        "image_pull_secrets": [each.get("name") for each in spec.get("imagePullSecrets") or ()],
        "working_dir": container.get("workingDir"),
        "env": dict(_variables(container)),
        "resources": _resources(spec, container),
        "placement": _some(
            priority_class=spec.get("priorityClassName"),
            node_selector=spec.get("nodeSelector"),
            tolerations=[_toleration(each) for each in spec.get("tolerations") or ()],
            affinity=spec.get("affinity"),
            scheduler_name=spec.get("schedulerName"),
        ),
        "disruption": _some(termination_grace_period_seconds=_grace(spec)),
        "security": _security(spec, container),
        "storage": _some(volumes=volumes, mounts=mounts),
    }
    if any(each.get("mountPath") == SHARED_MEMORY for each in container.get("volumeMounts") or ()):
        found["shared_memory"] = False  # the pod has its own there
    return _some(**found)


def _grace(spec: Mapping[str, Any]) -> int | None:
    """The pod's grace, where the workers' own fits into it; Kubernetes' default, which a live Job has, is shorter."""
    given, least = spec.get("terminationGracePeriodSeconds"), Runtime().shutdown_grace_seconds + GRACE_RESERVE_SECONDS
    return given if isinstance(given, int) and given >= least else None


def _some(**values: Any) -> Data:  # noqa: ANN401 - JSON
    return {name: value for name, value in values.items() if value not in (None, {}, [])}


def _variables(container: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    left: set[str] = set()  # to an overlay, whose variables come last, so that what refers to one goes with it
    for each in container.get("env") or ():
        name = str(each.get("name"))
        source = each.get("valueFrom") or {}
        if reserved(name):
            continue
        match source:
            case _ if left.intersection(REFERENCE.findall(_value(each))):
                left.add(name)
            case {"secretKeyRef": {"name": of, "key": key}}:
                yield name, {"secret": of, "key": key}
            case {"configMapKeyRef": {"name": of, "key": key}}:
                yield name, {"configmap": of, "key": key}
            case {"fieldRef": {"fieldPath": path}}:
                yield name, {"field": path}
            case _ if not source:
                yield name, {"value": _value(each)}
            case _:
                left.add(name)


def _value(variable: Mapping[str, Any]) -> str:
    return str(variable.get("value", ""))


def plain_variables(container: Mapping[str, Any]) -> frozenset[str]:
    """Variables whose `$(NAME)` in a command is one word: the operator's, and others but for values that are not."""
    return RESERVED | {
        str(each.get("name"))
        for each in container.get("env") or ()
        if each.get("valueFrom") or shlex.quote(_value(each)) == _value(each)
    }


def _resources(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Data:
    given = container.get("resources") or {}
    amounts = {**(given.get("requests") or {}), **(given.get("limits") or {})}
    found = _some(
        cpu=amounts.get("cpu"), memory=amounts.get("memory"), ephemeral_storage=amounts.get("ephemeral-storage")
    )
    for vendor, resource in VENDOR_RESOURCES.items():
        if count := _devices(amounts.get(resource)):
            found["gpu"] = {"count": count, "vendor": vendor}
    rdma = [name for name in amounts if _RDMA.fullmatch(name) and _devices(amounts[name])]
    if len(rdma) == 1 and _locks_memory(container):
        found["rdma"] = {"resource": rdma[0], "count": _devices(amounts[rdma[0]])}
    pages = [size for size in ("2Mi", "1Gi") if f"hugepages-{size}" in amounts]
    if len(pages) == 1:
        found["hugepages"] = {"amount": amounts[f"hugepages-{pages[0]}"], "page_size": pages[0]}
    return found | _some(claims=_claims(spec, given))


def _devices(amount: object) -> int | None:
    """A number of devices, which may be written as a quantity; None where it is no whole number."""
    number = any_quantity(amount)
    return int(number) if number is not None and number == int(number) else None


_RDMA: Final = re.compile(r"rdma/.+|vpc\.amazonaws\.com/efa")
"""The resources of the usual device plugins for RDMA; another one is left to an overlay."""


def _locks_memory(container: Mapping[str, Any]) -> bool:
    capabilities = (container.get("securityContext") or {}).get("capabilities") or {}
    return "IPC_LOCK" in (capabilities.get("add") or ())


def _claims(spec: Mapping[str, Any], given: Mapping[str, Any]) -> list[Data]:
    """The pod's claims, where each is made of a template and the container has all of each."""
    templates = {each.get("name"): each.get("resourceClaimTemplateName") for each in spec.get("resourceClaims") or ()}
    if None in templates.values() or list(given.get("claims") or ()) != [{"name": name} for name in templates]:
        return []
    return [{"name": name, "template": template} for name, template in templates.items()]


def _toleration(given: Mapping[str, Any]) -> Data:
    return _some(
        key=given.get("key"),
        operator=given.get("operator", "Equal"),
        value=given.get("value"),
        effect=given.get("effect"),
        toleration_seconds=given.get("tolerationSeconds"),
    )


def _security(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Data:
    pod, own = spec.get("securityContext") or {}, container.get("securityContext") or {}
    user = own.get("runAsUser", pod.get("runAsUser"))
    is_root = user == 0 or own.get("privileged") or spec.get("hostNetwork")
    has_host_path = any("hostPath" in each for each in spec.get("volumes") or ())
    return _some(
        profile="baseline" if is_root or has_host_path or _locks_memory(container) else None,
        run_as_user=user,
        read_only_root=own.get("readOnlyRootFilesystem"),
        service_account=spec.get("serviceAccountName"),
    )


def _storage(spec: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[list[Data], list[Data]]:
    """Mounts and volumes that the config can say; the others are left to an overlay, with their mounts."""
    volumes = [each for each in spec.get("volumes") or () if each.get("name")]
    known = {each["name"]: data for each in volumes if (data := _volume(each)) is not None}
    mounts = [
        _some(
            volume=each["name"],
            mount_path=each.get("mountPath"),
            sub_path=each.get("subPath"),
            read_only=each.get("readOnly"),
        )
        for each in container.get("volumeMounts") or ()
        if each.get("name") in known and each.get("mountPath") != SHARED_MEMORY
    ]
    used = {mount["volume"] for mount in mounts}
    return mounts, [data for name, data in known.items() if name in used]


def _volume(given: Mapping[str, Any]) -> Data | None:
    name = given["name"]
    match {key: value for key, value in given.items() if key != "name"}:
        case {"persistentVolumeClaim": {"claimName": claim, **more}} if not more:
            return {"name": name, "claim": claim}
        case {"secret": {"secretName": secret, **more}} if not more:
            return {"name": name, "secret": secret}
        case {"configMap": {"name": config_map, **more}} if not more:
            return {"name": name, "configmap": config_map}
        case {"emptyDir": {"sizeLimit": size, **more}} if not more:
            return {"name": name, "empty_dir": size}
        case {"hostPath": {"path": path, **more}} if not more:
            return {"name": name, "host_path": path}
    return None
