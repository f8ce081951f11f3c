"""The rules: pure functions from a workload object and a rule's settings to the violations.

Each message says what, why and what to do, in the words of the config, which users edit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.manifests.environment import CHECKPOINT_DIR
from elastic_infra.manifests.figures import at, figures, items, pod_template, variables
from elastic_infra.policy import settings

Workload = Mapping[str, Any]
Messages = Iterator[str]

_DIGEST: Final = re.compile(r".+@sha256:[0-9a-f]{64}")


def image_pinned(workload: Workload, _rule: settings.ImagePinned) -> Messages:
    """Every image is named by digest, those of init containers and sidecars too."""
    spec = at(pod_template(workload), "spec")
    for each in (*items(at(spec, "containers")), *items(at(spec, "initContainers"))):
        image = each.get("image")
        if isinstance(image, str) and not _DIGEST.fullmatch(image):
            yield (
                f"image {image!r} is not pinned by digest: a tag can move, and pods of one job would then run "
                "different code. Use image: NAME@sha256:DIGEST."
            )


def gpu_budget(workload: Workload, rule: settings.GpuBudget) -> Messages:
    """One job stays within its GPUs."""
    yield from _over(gpus(workload), rule.per_job, "GPUs", "elastic.nnodes or resources.gpu")


def node_budget(workload: Workload, rule: settings.NodeBudget) -> Messages:
    """One job stays within its nodes."""
    yield from _over(nodes(workload), rule.per_job, "nodes", "elastic.nnodes")


def _over(amount: int, limit: int | None, what: str, field: str) -> Messages:
    if limit is not None and amount > limit:
        yield f"uses up to {amount} {what}, and one job may use {limit}. Lower {field}."


def gpus(workload: Workload) -> int:
    """GPUs at the maximum of nodes."""
    found = figures(workload)
    return found.gpus_per_node * found.max_nodes


def nodes(workload: Workload) -> int:
    """The most nodes that a job may have."""
    return figures(workload).max_nodes


def checkpoint_when_preemptible(workload: Workload, rule: settings.CheckpointWhenPreemptible) -> Messages:
    """A job that can lose its nodes keeps what it has learned."""
    reason = "every job must" if rule.always else _preemptible(workload, rule)
    if reason and CHECKPOINT_DIR not in variables(workload):
        yield f"has no checkpoint volume, and {reason} keep checkpoints. Set storage.checkpoint."


def _preemptible(workload: Workload, rule: settings.CheckpointWhenPreemptible) -> str | None:
    spec = at(pod_template(workload), "spec")
    selected = at(spec, "nodeSelector")
    wanted = {(key, str(value)) for key, value in selected.items()} if isinstance(selected, Mapping) else set()
    if labels := wanted | set(_affine(at(spec, "affinity"))):
        for label in labels & set(rule.node_labels.items()):
            return f"jobs on nodes labelled {label[0]} can lose them, so they must"
    for each in items(at(spec, "tolerations")):
        if each.get("key") in rule.taints:
            return f"jobs that tolerate {each['key']} can lose their nodes, so they must"
    return None


def _affine(affinity: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - verbatim Kubernetes
    """Label and value of every expression in an affinity that asks for one."""
    if isinstance(affinity, Mapping):
        if affinity.get("operator") == "In":
            yield from ((str(affinity.get("key")), str(value)) for value in affinity.get("values", []))
        for each in affinity.values():
            yield from _affine(each)
    elif isinstance(affinity, Sequence) and not isinstance(affinity, str):
        for each in affinity:
            yield from _affine(each)


def restricted_profile(workload: Workload, _rule: settings.RestrictedProfile) -> Messages:
    """Pods satisfy https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    spec = at(pod_template(workload), "spec")
    every = (*items(at(spec, "containers")), *items(at(spec, "initContainers")))
    held = {
        "runAsNonRoot": at(spec, "securityContext.runAsNonRoot") is True,
        "seccompProfile": at(spec, "securityContext.seccompProfile.type") in {"RuntimeDefault", "Localhost"},
        "allowPrivilegeEscalation": all(_refuses_escalation(each) for each in every),
        "capabilities": all(_has_no_capability(each) for each in every),
        "hostPath": not any("hostPath" in volume for volume in items(at(spec, "volumes"))),
        "host namespaces": not any(at(spec, name) for name in ("hostNetwork", "hostPID", "hostIPC")),
    }
    if broken := [name for name, holds in held.items() if not holds]:
        listed = ", ".join(broken)
        yield f"does not satisfy Pod Security profile 'restricted' ({listed}). Set security.profile: restricted."


def _refuses_escalation(container: Mapping[str, Any]) -> bool:
    return at(container, "securityContext.allowPrivilegeEscalation") is False


def _has_no_capability(container: Mapping[str, Any]) -> bool:
    dropped, added = (at(container, f"securityContext.capabilities.{kind}") for kind in ("drop", "add"))
    return _words(dropped) == ["ALL"] and not added


def _words(value: object) -> list[str]:
    """A list of words; a policy pack's lists are proxies that equal no list."""
    return [str(word) for word in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


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
    name = at(pod_template(workload), "spec.priorityClassName")
    allowed = ", ".join(rule.allowed or ()) or "any"
    if name is None and rule.required:
        yield f"names no priority class. Set placement.priority_class to one of: {allowed}."
    elif name is not None and rule.allowed is not None and name not in rule.allowed:
        yield f"uses priority class {name!r}, which is not allowed. Set placement.priority_class to one of: {allowed}."


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
    if figures(workload).active_deadline_seconds is not None:
        yield (
            "relies on active_deadline_seconds, at which the training operator looks only when something happens "
            "(kubeflow/trainer#3358). Remove run_policy.active_deadline_seconds, and end training in the script."
        )
