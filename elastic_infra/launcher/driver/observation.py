"""Reads the objects of the API server: the job, its pods, the pods that wait beside them, disruption budgets. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .decision import Observation

Object = Mapping[str, Any]

MIN_NODES: Final = "elastic-infra/min-nodes"
"""Annotation of the pods of a job that grows into idle capacity: those from this index on take only what is idle, and
no other such job makes room for them. Two of them would take nodes from each other for ever."""
QUEUE: Final = "kueue.x-k8s.io/queue-name"
ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
INDICES: Final = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")
ENDS: Final = frozenset({"Succeeded", "Failed", "Complete", "Completed", "SuccessCriteriaMet", "FailureTarget"})


def hold(workload: Object) -> str:
    """Why the size is not the driver's to set now; empty where it is."""
    spec = workload["spec"]
    if _true(workload) & ENDS:
        return "the job has ended"
    if is_queued(workload) and workload["metadata"].get("annotations", {}).get(ELASTIC) != "true":
        return "the job is in a queue of Kueue, whose quota bounds its size"
    if spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"):
        return "the job is suspended"
    return ""


def is_queued(workload: Object) -> bool:
    """Whether Kueue admits the job, from a queue."""
    return QUEUE in workload["metadata"].get("labels", {})


def size(workload: Object) -> int:
    """The number of nodes that the job asks for."""
    spec = workload["spec"]
    if "replicatedJobs" in spec:  # a JobSet, of the one Job that trains
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    replicas = spec.get("pytorchReplicaSpecs", {}).get("Worker", {}).get("replicas", 1)
    return int(spec.get("parallelism", replicas))


def observe(
    workload: Object, own: Iterable[Object], pending: Iterable[Object], budgets: Iterable[Object]
) -> Observation:
    """What the decision needs.

    Args:
        own: the pods of the job's nodes.
        pending: the namespace's pods without a place.
        budgets: the namespace's PodDisruptionBudgets.
    """
    nodes = size(workload)
    alive = [pod for pod in own if pod["status"].get("phase") in {"Pending", "Running"}]
    stay = [pod for pod in alive if "deletionTimestamp" not in pod["metadata"]]
    placed = [pod for pod in stay if pod["spec"].get("nodeName") and index(pod) < nodes]
    ours = {pod["metadata"]["uid"] for pod in alive}
    others = [pod for pod in pending if pod["metadata"]["uid"] not in ours]
    return Observation(
        size=nodes,
        placed=frozenset(map(index, placed)),
        is_settled=len(stay) == len(alive) and all("Ready" in _true(pod) for pod in placed),
        waiting=frozenset(pod["metadata"]["uid"] for pod in others if placed and could_take(pod, placed[0])),
        spare=min((_spare(each) for each in budgets if placed and _selects(each, placed[0])), default=nodes),
    )


def index(pod: Object) -> int:
    """The number of a node of a job; -1 where the pod has none."""
    labels = pod["metadata"].get("labels", {})
    return next((int(labels[label]) for label in INDICES if label in labels), -1)


def could_take(pod: Object, ours: Object) -> bool:
    """Whether a pod waits for what one of ours has, and comes before it.

    What is idle beside ours on its cluster node cannot be seen from the namespace: the pod must fit in our place alone.
    """
    spec, status, annotations = pod["spec"], pod["status"], pod["metadata"].get("annotations", {})
    if "deletionTimestamp" in pod["metadata"] or spec.get("nodeName") or status.get("nominatedNodeName"):
        return False
    if spec.get("priority", 0) < ours["spec"].get("priority", 0):
        return False
    if index(pod) >= int(annotations.get(MIN_NODES, 2**31)):
        return False
    wanted, freed, theirs = requests(spec), requests(ours["spec"]), ours["spec"].get("nodeSelector") or {}
    lacks = any(f"Insufficient {resource}" in _unschedulable(pod) for resource in freed)
    fits = all(amount <= freed.get(resource, 0) for resource, amount in wanted.items())
    selector = spec.get("nodeSelector") or {}
    return lacks and fits and all(theirs.get(key, value) == value for key, value in selector.items())


def requests(spec: Object) -> dict[str, float]:
    """What a pod asks for, by resource: the sum of the containers that stay, or its largest init container."""
    total: dict[str, float] = {}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        stays = container in spec["containers"] or container.get("restartPolicy") == "Always"
        for resource, text in container.get("resources", {}).get("requests", {}).items():
            amount, before = quantity(text), total.get(resource, 0)
            total[resource] = before + amount if stays else max(before, amount)
    return total


_QUANTITY: Final = re.compile(r"([0-9.]+)([numkKMGTPE]?)(i?)")
_POWERS: Final = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def quantity(text: object) -> float:
    """A quantity of Kubernetes, such as `500m` or `1Gi`, as a number; what cannot be read fits nowhere."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return math.inf
    return float(match[1]) * (1024.0 if match[3] else 1000.0) ** _POWERS[match[2]]


def _true(thing: Object) -> set[str]:
    """The types of an object's conditions that are true."""
    conditions = thing.get("status", {}).get("conditions") or ()
    return {each["type"] for each in conditions if each["status"] == "True"}


def _unschedulable(pod: Object) -> str:
    """What the scheduler says of a pod for which it finds no place."""
    conditions = pod["status"].get("conditions") or ()
    return next((each.get("message", "") for each in conditions if each.get("reason") == "Unschedulable"), "")


def _selects(budget: Object, pod: Object) -> bool:
    """Whether a budget may count a pod; its expressions are not read, so that it rather does."""
    selector, labels = budget["spec"].get("selector"), pod["metadata"].get("labels", {})
    return selector is not None and selector.get("matchLabels", {}).items() <= labels.items()


def _spare(budget: Object) -> int:
    return int(budget.get("status", {}).get("disruptionsAllowed", 0))
