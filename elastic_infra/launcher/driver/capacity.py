"""Looks at the job and its namespace, and sets the number of nodes."""

from __future__ import annotations

import dataclasses
import time
from typing import Final
from urllib.parse import urlencode

from .api_server import WORKLOADS, Call, listed, path_of
from .decision import Limits, Memory, Observation, begin, decide
from .observation import Object, hold, is_queued, observe
from .queued import claims

SIZED: Final = {"TrainJob": "JobSet"}
"""The kind of the object that holds the number of nodes, where that is another one of the job's name."""
FIXED: Final = (
    "JobSet refuses another number of nodes: its feature gate ElasticJobSet is off; turn it on in JobSet's "
    "configuration, or remove elastic.elastic_job_set"
)
MOST_PODS: Final = 500
"""Waiting pods that one look reads, so that a crowded namespace does not cost the driver its memory."""


def look(
    call: Call, job: tuple[str, str, str], selector: str, limits: Limits, memory: Memory | None
) -> tuple[Memory | None, str]:
    """One look at the cluster and what follows from it: the memory, none while the size is another's, and a line.

    Args:
        call: asks the API server.
        job: kind, namespace and name.
        selector: labels of the job's pods.
        limits: what the config says.
        memory: what the last look has left.
    """
    kind, namespace, name = job
    path = path_of(kind, namespace, name)
    workload = call("GET", path)
    why = hold(workload)
    if kind in SIZED and not why:  # the label of a queue is the TrainJob's alone
        kind = SIZED[kind]
        path = path_of(kind, namespace, name)
        workload = call("GET", path)
        why = hold(workload)
    if why:
        return None, f"leaves the size alone: {why}"
    seen = _seen(call, workload, namespace, selector, limits)
    now = time.monotonic()
    nodes, why, after = decide(seen, limits, memory or begin(limits, now), now)
    if nodes == seen.size:
        return after, f"size {nodes}: {why}"
    try:
        call("PATCH", path + "/scale" * (kind == "PyTorchJob"), _change(kind, workload, nodes))
    except OSError as error:
        if kind == "JobSet" and "immutable" in str(error):  # with all of the pods' template, which is not for a log
            return memory, f"size {seen.size}: {FIXED}"
        raise
    return after, f"size {seen.size} to {nodes}: {why}"


def _seen(call: Call, workload: Object, namespace: str, selector: str, limits: Limits) -> Observation:
    waiting = urlencode({"fieldSelector": "spec.nodeName=,status.phase=Pending", "limit": MOST_PODS})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pending = call("GET", f"{pods}?{waiting}")["items"]
    budgets = call("GET", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")["items"]
    own = [*listed(call, pods, labelSelector=selector)]  # last, so that none of the pending ones is unknown
    seen = observe(workload, own, pending, budgets)
    node, spare = next((pod for pod in own if pod["spec"].get("nodeName")), None), seen.size - limits.sizes[0]
    if not is_queued(workload) or node is None or spare < 1:
        return seen
    workloads = listed(call, WORKLOADS.format(namespace=namespace))
    return dataclasses.replace(seen, waiting=seen.waiting | claims(workloads, workload, node, spare))


def _change(kind: str, workload: Object, nodes: int) -> object:
    """A patch with another number of nodes, which is refused where the object has changed since it was read."""
    version = workload["metadata"]["resourceVersion"]
    if kind == "JobSet":
        job = "/spec/replicatedJobs/0/template/spec"  # the one that trains
        both = [{"op": "replace", "path": f"{job}/{field}", "value": nodes} for field in ("parallelism", "completions")]
        return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *both]
    spec = {"replicas": nodes} if kind == "PyTorchJob" else {"parallelism": nodes, "completions": nodes}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


def sizes(text: str) -> tuple[int, ...]:
    """``2:8:2`` is ``(2, 4, 6, 8)``; ``2,8`` is ``(2, 8)``."""
    if ":" in text:
        low, high, step = map(int, text.split(":"))
        return tuple(range(low, high + 1, step))
    return tuple(map(int, text.split(",")))
