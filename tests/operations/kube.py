"""Objects as a cluster returns them: what this package renders, with the fields that controllers add."""

from __future__ import annotations

import copy
import json
from typing import Any

from elastic_infra import render
from elastic_infra.manifests.figures import workload_of
from tests import jobs

BEGAN, LATER, NOW = "2026-01-02T03:00:00Z", "2026-01-02T03:10:00Z", 1767324000.0
"""``NOW`` is 03:20 of that day."""


def workload(*conditions: str, **fields: Any) -> dict[str, Any]:
    """A live workload object, with these conditions; by default of two to four nodes."""
    config = jobs.job(**fields) if fields.get("elastic") == {"nnodes": 1} else jobs.elastic(**fields)
    made: dict[str, Any] = copy.deepcopy(jobs.objects(config)["workload"])
    made["metadata"] |= {"uid": "uid-job", "creationTimestamp": BEGAN}
    told = [condition(kind) for kind in conditions]
    made["status"] = {"startTime": BEGAN, "conditions": told}
    return made


def train_job(*conditions: str, active: int = 0, **fields: Any) -> dict[str, Any]:
    """A live TrainJob with its runtime, as the commands read both; `active` of its Jobs have pods."""
    made: dict[str, Any] = copy.deepcopy(workload_of(render(jobs.NAME, jobs.train_job(**fields))))
    made["metadata"] |= {"uid": "uid-job", "creationTimestamp": BEGAN}
    counted = [{"name": "node", "active": active, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}]
    return {**made, "status": {"conditions": [condition(kind) for kind in conditions], "jobsStatus": counted}}


def condition(kind: str, message: str = "") -> dict[str, str]:
    """A condition that holds."""
    return {"type": kind, "status": "True", "lastTransitionTime": LATER, "message": message}


def pod(index: int, phase: str = "Running", **container: Any) -> dict[str, Any]:
    """A node's pod; `container` are fields of its container's status."""
    name = f"job-worker-{index}"
    labels = {"app.kubernetes.io/instance": "job", "app.kubernetes.io/component": "worker"}
    ready = [{"type": "Ready", "status": "True"}] if phase == "Running" else []
    status = {"phase": phase, "startTime": BEGAN, "conditions": ready}
    if container or phase == "Running":
        status["containerStatuses"] = [{"name": "pytorch", "restartCount": 0, **container}]
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "status": status}


def initializing(index: int, container: str, **fields: Any) -> dict[str, Any]:
    """A pod whose init container is not done; `fields` are those of that container's status."""
    found = pod(index, "Pending", state={"waiting": {"reason": "PodInitializing"}})
    found["status"]["initContainerStatuses"] = [{"name": "before", **_DONE}, {"name": container, **fields}]
    return found


_DONE = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}


def indexed_pod(index: int, suffix: str, phase: str = "Running", made: str = BEGAN) -> dict[str, Any]:
    """A pod of an Indexed Job, whose own name says which of its index's pods it is."""
    found, name = pod(index, phase), f"job-{index}-{suffix}"
    labels = {**found["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(index)}
    found["metadata"] |= {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": made}
    return {**found, "spec": {"hostname": f"job-{index}"}}


def snapshot(index: int, **fields: Any) -> dict[str, Any]:
    """What a status port says, in a generation of two nodes with two workers each."""
    known = {
        "node": f"job-worker-{index}",
        "phase": "monitoring",
        "generation": 3,
        "attempt": 2,
        "restart_count": 1,
        "max_restarts": 3,
        "membership_changes": 1,
        "world_size": 4,
        "nodes": ["job-worker-0", "job-worker-1"],
        "highest_step": 40 + index,
        "checkpoint_step": None,
    }
    return known | fields


def terminated(code: int, message: str = "", at: str = LATER) -> dict[str, Any]:
    """The end of a container."""
    return {"terminated": {"exitCode": code, "reason": "Error", "message": message, "finishedAt": at}}


def report(message: str) -> str:
    """A launcher's termination message."""
    return json.dumps({"exit_code": 1, "reason": "the budget is used up", "message": message})
