"""Reads the name, the labels and the annotations of a workload object, and leaves out what programs wrote there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from elastic_infra.config.pod_rules import is_own_key
from elastic_infra.manifests.metadata import QUEUE, QUEUE_PRIORITY

Data = dict[str, Any]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The whole object as `kubectl apply` got it, with the values of its variables:
https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-last-applied-configuration"""

_TRACKING: Final = (
    "argocd.argoproj.io/",
    "config.k8s.io/owning-inventory",
    "helm.sh/",
    "kapp.k14s.io/",
    "meta.helm.sh/",
    "objectset.rio.cattle.io/",
)
"""Beginnings of the keys by which Argo CD, kpt, Helm, kapp and Fleet find what they made."""

_FLUX: Final = ".toolkit.fluxcd.io"
"""The end of Flux's prefixes, one a controller."""


def metadata_fields(metadata: Mapping[str, Any]) -> tuple[Data, list[str]]:
    """Fields of the config that an object's metadata gives, and what is left out."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    fields: Data = {
        "name": metadata.get("name"),
        "namespace": metadata.get("namespace"),
        "labels": {key: value for key, value in labels.items() if not _is_foreign(key)},
        "annotations": {key: value for key, value in annotations.items() if not _is_foreign(key)},
        "queue": _queue(labels),
    }
    notes = [] if metadata.get("name") else ["the object has no name; the file's or the folder's is taken."]
    notes += _told("labels", labels) + _told("annotations", annotations)
    return {name: value for name, value in fields.items() if value not in (None, {})}, notes


def _queue(labels: Mapping[str, Any]) -> Data:
    """The part of `placement` that names a queue of Kueue, and the job's order in it."""
    if not labels.get(QUEUE):
        return {}
    priority = labels.get(QUEUE_PRIORITY)
    return {"queue": labels[QUEUE], **({"kueue": {"priority_class": priority}} if priority else {})}


def is_of_job_controller(label: str) -> bool:
    """Whether the Job controller has written a label into a live Job or its template, where it names that Job.

    Source: https://github.com/kubernetes/api/blob/v0.34.0/batch/v1/types.go
    """
    return label in {"controller-uid", "job-name"} or label.startswith("batch.kubernetes.io/")


def _told(kind: str, given: Mapping[str, Any]) -> list[str]:
    read = {LAST_APPLIED, *((QUEUE, QUEUE_PRIORITY) if QUEUE in given else ())}
    left_out = [key for key in given if _is_foreign(key) and key not in read]
    if not left_out:
        return []
    return [f"leaves out metadata.{kind} by which a program finds its objects: {', '.join(left_out)}."]


def _is_foreign(key: str) -> bool:
    """Whether a program wrote the key: the job that is made anew is another object, and not that program's."""
    is_tracking = key.startswith(_TRACKING) or key.partition("/")[0].endswith(_FLUX)
    return key == LAST_APPLIED or is_tracking or is_own_key(key) or is_of_job_controller(key)
