"""What workloads wait for in the job's queue of Kueue, in nodes of the job. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from .observation import QUEUE, Object, quantity, requests

GROWS: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
"""Annotation of a workload that is the growth of a job which trains: for that no other job makes room."""
_LACKS: Final = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
"""https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go"""


def claims(workloads: Iterable[Object], job: Object, node: Object, most: int) -> frozenset[str]:
    """The workloads that could begin if the job gave nodes up, each as its uid and the number of nodes that it lacks.

    Kueue admits a workload as a whole, so one that lacks more than the job can give is not named. With each node that
    is given the number changes, and the claim is another one.

    Args:
        workloads: those of the namespace.
        job: the batch/v1 Job, in the queue.
        node: a pod of the job that has its place.
        most: how many nodes the job can give.
    """
    mine: list[Object] = []
    others: list[Object] = []
    for each in workloads:
        (mine if _is_of(each, job) else others).append(each)
    held, freed = _flavors(mine), requests(node["spec"])
    priority = max((_priority(each) for each in mine), default=0)
    queue = job["metadata"]["labels"][QUEUE]
    lacking = {
        each["metadata"]["uid"]: _nodes(_why_not(each), held, freed)
        for each in others
        if each["spec"].get("queueName") == queue and _priority(each) >= priority and not _grows(each)
    }
    return frozenset(f"{uid}/{nodes}" for uid, nodes in lacking.items() if 0 < nodes <= most)


def _nodes(why: str, held: Mapping[str, str], freed: Mapping[str, float]) -> int:
    """How many nodes of the job have what a workload lacks; 0 where it lacks what no node of the job has."""
    lacks = [match.groups() for match in _LACKS.finditer(why)]
    ours = {resource: quantity(more) for resource, flavor, more in lacks if held.get(resource) == flavor}
    if ours.keys() != {resource for resource, _, _ in lacks} or not all(freed.get(resource) for resource in ours):
        return 0
    return max((math.ceil(more / freed[resource]) for resource, more in ours.items()), default=0)


def _flavors(workloads: Iterable[Object]) -> dict[str, str]:
    """The flavor of each resource for which these workloads have quota."""
    return {
        resource: flavor
        for each in workloads
        for assignment in each.get("status", {}).get("admission", {}).get("podSetAssignments", ())
        for resource, flavor in assignment.get("flavors", {}).items()
    }


def _is_of(workload: Object, job: Object) -> bool:
    owners = workload["metadata"].get("ownerReferences", ())
    return any(owner["uid"] == job["metadata"]["uid"] for owner in owners)


def _grows(workload: Object) -> bool:
    return GROWS in workload["metadata"].get("annotations", {})


def _priority(workload: Object) -> int:
    return int(workload["spec"].get("priority", 0))


def _why_not(workload: Object) -> str:
    """What Kueue says of a workload for which it has no quota now."""
    conditions = workload.get("status", {}).get("conditions", ())
    reserved = (each for each in conditions if each["type"] == "QuotaReserved" and each["status"] == "False")
    return "".join(each.get("message", "") for each in reserved)
