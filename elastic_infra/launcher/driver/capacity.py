"""Looks at the job and its namespace, and sets the number of nodes."""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlencode

from .api_server import Call, listed, path_of
from .decision import Limits, Memory, begin, decide
from .observation import hold, observe

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
    kind, namespace, _ = job
    path, space = path_of(*job), f"namespaces/{namespace}"
    workload = call("GET", path)
    if why := hold(workload):
        return None, f"leaves the size alone: {why}"
    waiting = urlencode({"fieldSelector": "spec.nodeName=,status.phase=Pending", "limit": MOST_PODS})
    pods, budgets = f"/api/v1/{space}/pods", f"/apis/policy/v1/{space}/poddisruptionbudgets"
    own = listed(call, pods, labelSelector=selector)
    seen = observe(workload, own, *(call("GET", each)["items"] for each in (f"{pods}?{waiting}", budgets)))
    now = time.monotonic()
    nodes, why, after = decide(seen, limits, memory or begin(limits, now), now)
    if nodes == seen.size:
        return after, f"size {nodes}: {why}"
    is_operated = kind == "PyTorchJob"
    spec = {"replicas": nodes} if is_operated else {"parallelism": nodes, "completions": nodes}
    version = {"resourceVersion": workload["metadata"]["resourceVersion"]}  # refused where the job has changed since
    call("PATCH", path + "/scale" * is_operated, {"metadata": version, "spec": spec})
    return after, f"size {seen.size} to {nodes}: {why}"


def sizes(text: str) -> tuple[int, ...]:
    """``2:8:2`` is ``(2, 4, 6, 8)``; ``2,8`` is ``(2, 8)``."""
    if ":" in text:
        low, high, step = map(int, text.split(":"))
        return tuple(range(low, high + 1, step))
    return tuple(map(int, text.split(",")))
