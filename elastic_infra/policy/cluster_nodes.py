"""Which cluster nodes the pods of a workload ask for by label: their selector and their node affinity together. Pure.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from elastic_infra.manifests.affinity import PREFERRED, REQUIRED
from elastic_infra.manifests.figures import at, followed, items, pod_template, words

Term = list[Mapping[str, Any]]
"""Expressions that a cluster node satisfies all of."""


def required_terms(workload: Mapping[str, Any], labels: Collection[str]) -> list[Term]:
    """What a cluster node must satisfy one of, as far as it is about these labels; one term at least."""
    spec = at(pod_template(workload), "spec")
    terms = items(at(spec, f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"))
    return [_term(spec, each, labels) for each in terms] or [_term(spec, {}, labels)]


def preferred_terms(workload: Mapping[str, Any], labels: Collection[str]) -> list[Term]:
    """What draws the pods to a cluster node, as far as it is about these labels."""
    spec = at(pod_template(workload), "spec")
    terms = items(at(spec, f"affinity.nodeAffinity.{PREFERRED}"))
    return [_term(spec, at(each, "preference"), labels) for each in terms]


def _term(spec: Any, term: Any, labels: Collection[str]) -> Term:  # noqa: ANN401 - verbatim Kubernetes
    selected = {label: followed(spec, ("nodeSelector", label)) for label in labels}
    return [
        *(
            {"key": label, "operator": "In", "values": [value]}
            for label, value in selected.items()
            if value is not None
        ),
        *(each for each in items(at(term, "matchExpressions")) if each.get("key") in selected),
    ]


def asked_for(term: Term) -> Iterator[str]:
    """The values that a term names, and takes no other than these."""
    for each in term:
        if each.get("operator") == "In":
            yield from words(each.get("values"))


def admits(term: Term, label: str, value: str) -> bool:
    """Whether a term speaks of a label, and is satisfied by cluster nodes that have it with this value."""
    spoken = [each for each in term if each.get("key") == label]
    return bool(spoken) and all(_holds(each, value) for each in spoken)


def _holds(expression: Mapping[str, Any], value: str) -> bool:
    match expression.get("operator"):
        case "In":
            return value in words(expression.get("values"))
        case "NotIn":
            return value not in words(expression.get("values"))
        case operator:
            return operator == "Exists"
