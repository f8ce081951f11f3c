"""The rules: pure functions from a workload object and a rule's settings to the violations.

Each message says what, why and what to do, in the words of the config, which users edit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from elastic_infra.manifests.environment import CHECKPOINT_DIR
from elastic_infra.manifests.figures import (
    at,
    every_container,
    figures,
    gpus_per_node,
    items,
    pod_template,
    variable,
    variable_names,
    volume_at,
)
from elastic_infra.manifests.gang import gang_queue
from elastic_infra.manifests.metadata import ON_RESTART, QUEUE
from elastic_infra.policy import pod_security, settings
from elastic_infra.policy.cluster_nodes import admits, asked_for, preferred_terms, required_terms

Workload = Mapping[str, Any]
Messages = Iterator[str]

_DIGEST: Final = re.compile(r".+@sha256:[0-9a-f]{64}")


def image_pinned(workload: Workload, _rule: settings.ImagePinned) -> Messages:
    """Every image is named by digest, those of init containers and sidecars too."""
    for image in _images(workload):
        if not _DIGEST.fullmatch(image):
            yield (
                f"image {image!r} is not pinned by digest: a tag can move, and pods of one job would then run "
                "different code. Use image: NAME@sha256:DIGEST."
            )


def registries(workload: Workload, rule: settings.Registries) -> Messages:
    """Every image comes from an allowed registry."""
    for image in _images(workload):
        whole = _qualified(image)
        folders = [_with_hub(f"{each.rstrip('/')}/") for each in rule.allowed or ()]
        if rule.allowed is not None and not whole.startswith((*folders,)):
            yield f"image {image!r} is in none of the allowed registries: {', '.join(rule.allowed)}. Copy it to one."


def _images(workload: Workload) -> Iterator[str]:
    """Names of the images that run or are mounted, then what a preview by Pulumi raises for one that is known late."""
    late: Exception | None = None
    run = ((each, "image") for each in every_container(workload))
    mounted = ((each, "image.reference") for each in items(at(pod_template(workload), "spec.volumes")))
    for holder, path in (*run, *mounted):
        try:
            image = at(holder, path)
        except Exception as error:  # noqa: BLE001 - of pulumi_policy, which is not installed everywhere
            late = error
            continue
        if isinstance(image, str):
            yield image
    if late is not None:
        raise late


def _qualified(image: str) -> str:
    """An image with its registry: https://github.com/distribution/reference/blob/main/normalize.go."""
    first, slash, _ = image.partition("/")
    has_registry = slash and (first == "localhost" or "." in first or ":" in first)
    registry, _, rest = _with_hub(image if has_registry else f"docker.io/{image}").partition("/")
    return f"docker.io/library/{rest}" if registry == "docker.io" and "/" not in rest else f"{registry}/{rest}"


def _with_hub(name: str) -> str:
    """A name with Docker Hub under its one name."""
    return re.sub(r"^index\.docker\.io/", "docker.io/", name)


def namespaces(workload: Workload, rule: settings.Namespaces) -> Messages:
    """The job is in an allowed namespace."""
    namespace = at(workload, "metadata.namespace")
    if isinstance(namespace, str) and not _is_allowed(namespace, rule.allowed):
        yield f"is in namespace {namespace!r}. Set namespace to one of: {', '.join(rule.allowed or ())}."


def queues(workload: Workload, rule: settings.Queues) -> Messages:
    """Only allowed queues are used."""
    found = {
        "placement.queue": _label(workload, QUEUE),
        "run_policy.scheduling_policy.queue": at(workload, "spec.runPolicy.schedulingPolicy.queue"),
        "placement.gang.queue": gang_queue(workload),
    }
    names = {field: name for field, name in found.items() if isinstance(name, str)}
    allowed = ", ".join(rule.allowed or ()) or "any"
    if not names and rule.required:
        yield f"names no queue. Set placement.queue to one of: {allowed}."
    for field, name in names.items():
        if not _is_allowed(name, rule.allowed):
            yield f"waits in queue {name!r}, which is not allowed. Set {field} to one of: {allowed}."


def gpu_types(workload: Workload, rule: settings.GpuTypes) -> Messages:
    """Only allowed types of GPU are asked for."""
    if not gpus(workload, rule):
        return
    chosen = [set(asked_for(term)) for term in required_terms(workload, rule.node_labels)]
    allowed = ", ".join(rule.allowed or ()) or "any"
    if rule.required and not all(chosen):
        yield (
            f"takes GPUs of any type. Choose one in placement.node_selector by {rule.node_labels[0]}; "
            f"allowed: {allowed}."
        )
    for value in sorted(set().union(*chosen)):
        if not _is_allowed(value, rule.allowed):
            yield f"asks for GPUs of type {value!r}, and allowed are: {allowed}. Change placement."


def _is_allowed(name: str, allowed: Sequence[str] | None) -> bool:
    return allowed is None or any(fnmatchcase(name, pattern) for pattern in allowed)


def _label(workload: Workload, name: str) -> str | None:
    found = at(workload, "metadata.labels")
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, str) else None


def lifetime(workload: Workload, rule: settings.Lifetime) -> Messages:
    """The job has an end, and its objects have."""
    found = figures(workload)
    yield from _ends(found.active_deadline_seconds, rule.max_active_seconds, "active_deadline_seconds", "run")
    if workload.get("kind") != "TrainJob":
        yield from _ends(found.ttl_seconds_after_finished, rule.max_ttl_seconds, "ttl_seconds_after_finished", "stay")
    elif rule.max_ttl_seconds is not None:
        yield (
            f"stays when it has ended, and {rule.max_ttl_seconds} s are allowed: Trainer deletes no finished TrainJob "
            "(kubeflow/trainer#4052). Set target: job."
        )


def _ends(seconds: int | None, limit: int | None, field: str, verb: str) -> Messages:
    if limit is not None and (seconds is None or seconds > limit):
        found = "without an end" if seconds is None else f"for {seconds} s"
        yield f"may {verb} {found}, and {limit} s are allowed. Set run_policy.{field} to at most {limit}."


def environment(workload: Workload, rule: settings.Environment) -> Messages:
    """Variables that must be there are, and those that must not are not. Values are never told."""
    yield from forbidden_variables(workload, rule)
    names = variable_names(workload)
    yield from (f"lacks the variable {name}. Set env.{name}." for name in rule.required if name not in names)
    for name, pattern in rule.required.items():
        if pattern and name in names and not re.fullmatch(pattern, str(variable(workload, name) or "")):
            yield f"has a variable {name} whose value does not match {pattern!r}. Fix env.{name}."


def forbidden_variables(workload: Workload, rule: settings.Environment) -> Messages:
    """No container has a variable that must not be there."""
    found = (each for container in every_container(workload) for each in items(container.get("env")))
    for name in dict.fromkeys(str(each.get("name")) for each in found):
        if any(fnmatchcase(name, pattern) for pattern in rule.forbidden):
            yield (
                f"has the variable {name}, which is forbidden. Remove env.{name}; where this package sets it itself, "
                "leave it out of the rule's forbidden."
            )


def on_restart(workload: Workload, rule: settings.OnRestart) -> Messages:
    """The job says what the platform asks for."""
    annotations = at(workload, "metadata.annotations")
    found = annotations.get(ON_RESTART, "replace") if isinstance(annotations, Mapping) else "replace"
    if found != rule.required:
        yield f"has on_restart {found!r}. Set run_policy.on_restart to {rule.required}."


def gpu_budget(workload: Workload, rule: settings.GpuBudget) -> Messages:
    """One job stays within its GPUs."""
    yield from _over(gpus(workload, rule), rule.per_job, "GPUs", "elastic.nnodes or resources.gpu")


def node_budget(workload: Workload, rule: settings.NodeBudget) -> Messages:
    """One job stays within its nodes."""
    yield from _over(nodes(workload, rule), rule.per_job, "nodes", "elastic.nnodes")


def _over(amount: int, limit: int | None, what: str, field: str) -> Messages:
    if limit is not None and amount > limit:
        yield f"uses up to {amount} {what}, and one job may use {limit}. Lower {field}."


def gpus(workload: Workload, rule: settings.GpuBudget | settings.GpuTypes) -> int:
    """GPUs at the maximum of nodes."""
    return gpus_per_node(workload, rule.resources) * figures(workload).max_nodes


def nodes(workload: Workload, _rule: settings.NodeBudget) -> int:
    """The most nodes that a job may have."""
    return figures(workload).max_nodes


def checkpoint_when_preemptible(workload: Workload, rule: settings.CheckpointWhenPreemptible) -> Messages:
    """A job that can lose its nodes keeps what it has learned."""
    reason = "every job must" if rule.always else _preemptible(workload, rule)
    if reason and not _keeps_checkpoints(workload):
        yield f"has no checkpoint volume, and {reason} keep checkpoints. Set storage.checkpoint."


def _keeps_checkpoints(workload: Workload) -> bool:
    """Whether the folder of checkpoints is a volume that outlives the pod, whatever an overlay has made of it."""
    folder = variable(workload, CHECKPOINT_DIR)
    volume = None if folder is None else volume_at(workload, folder)
    return volume is not None and all(volume.get(source) is None for source in ("emptyDir", "ephemeral"))


def _preemptible(workload: Workload, rule: settings.CheckpointWhenPreemptible) -> str | None:
    terms = required_terms(workload, rule.node_labels) + preferred_terms(workload, rule.node_labels)
    for label, value in rule.node_labels.items():
        if any(admits(term, label, value) for term in terms):
            return f"jobs on nodes labelled {label} can lose them, so they must"
    for each in items(at(pod_template(workload), "spec.tolerations")):
        if (key := each.get("key")) in rule.taints:
            return f"jobs that tolerate {key} can lose their nodes, so they must"
        if not key and rule.taints and each.get("effect") in _KEEPS_AWAY:
            return "jobs that tolerate every taint can lose their nodes, so they must"
    return None


_KEEPS_AWAY: Final = (None, "", "NoSchedule")
"""Effects of a toleration without a key that lets pods onto spot nodes: their makers' taints have this one."""


def restricted_profile(workload: Workload, _rule: settings.RestrictedProfile) -> Messages:
    """Pods satisfy the profile `restricted`."""
    if broken := pod_security.unmet(workload):
        listed = ", ".join(broken)
        yield (
            f"does not satisfy Pod Security profile 'restricted' ({listed}). Set security.profile: restricted, and "
            "remove what overlays.pod sets against it."
        )


def labels(workload: Workload, rule: settings.Labels) -> Messages:
    """Every required label is there, with a value of the right form."""
    given = at(workload, "metadata.labels")
    given = given if isinstance(given, Mapping) else {}
    for name, pattern in rule.required.items():
        if name not in given:
            yield f"lacks the label {name!r}. Set labels.{name}."
        elif pattern and not re.fullmatch(pattern, str(given[name])):
            yield f"has a label {name!r} whose value does not match {pattern!r}. Fix labels.{name}."


def priority_class(workload: Workload, rule: settings.PriorityClass) -> Messages:
    """Only allowed classes are used."""
    found = {
        "placement.priority_class": at(pod_template(workload), "spec.priorityClassName"),
        "run_policy.scheduling_policy.priority_class": at(workload, "spec.runPolicy.schedulingPolicy.priorityClass"),
    }
    names = {field: name for field, name in found.items() if name is not None}
    allowed = ", ".join(rule.allowed or ()) or "any"
    if not names and rule.required:
        yield f"names no priority class. Set placement.priority_class to one of: {allowed}."
    for field, name in names.items():
        if rule.allowed is not None and name not in rule.allowed:
            yield f"uses priority class {name!r}, which is not allowed. Set {field} to one of: {allowed}."


def restart_budget(workload: Workload, rule: settings.RestartBudget) -> Messages:
    """Failures cost some restarts, not none and not all the time there is."""
    found = figures(workload)
    restarts = found.max_restarts or 0
    if not rule.min_restarts <= restarts <= rule.max_restarts:
        asked = f"{rule.min_restarts} to {rule.max_restarts}"
        yield f"allows {restarts} restarts, and {asked} are asked for. Set elastic.max_restarts."
    # No limit of the job's counts pods that are made anew; the launcher bounds how often a node may give up.
    if rule.limited_containers and found.restarts_in_place and found.backoff_limit is None:
        yield "allows any number of container restarts. Set run_policy.backoff_limit to a number."


def no_active_deadline(workload: Workload, _rule: settings.NoActiveDeadline) -> Messages:
    """No deadline is set that the training operator enforces late."""
    if workload.get("kind") == "PyTorchJob" and figures(workload).active_deadline_seconds is not None:
        yield (
            "relies on active_deadline_seconds, at which the training operator looks only when something happens "
            "(kubeflow/trainer#3358). Remove run_policy.active_deadline_seconds, and end training in the script."
        )
