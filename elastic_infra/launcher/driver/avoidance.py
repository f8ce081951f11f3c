"""Keeps the job's pods away from a cluster node that the launchers have left out. Pure.

A small pod with a label is put there, and the job's pods have an anti-affinity to that label: the scheduler then
chooses another cluster node, without any right on cluster nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..protocol.records import Generation
from .api_server import KINDS

Object = Mapping[str, Any]

INSTANCE: Final = "app.kubernetes.io/instance"
"""On every pod of the job."""
LABEL: Final = "elastic-infra/avoid"
"""Its value is the name of the job whose pods stay away."""
MOST: Final = 4
"""Cluster nodes that a job avoids at a time: where more of them fail, it is hardly the nodes' fault."""
AMOUNTS: Final = {"cpu": "10m", "memory": "32Mi"}
COMMAND: Final = ("python3", "-c", "import signal; signal.signal(15, lambda *_: exit()); signal.pause()")


def names(job: str) -> list[str]:
    """The names of the pods that hold a job's nodes away: few, so that rights on them can be bound to names."""
    return [f"{job}-avoid-{number}" for number in range(MOST)]


def left_out(before: Generation | None, record: Generation) -> str:
    """The name of the node that a record leaves out; empty where it leaves none out, or the moment is not known.

    Args:
        before: the last record that was seen: a later pod of this name may run elsewhere.
    """
    follows = before is not None and record.number == before.number + 1
    cause = record.cause
    return cause.node if follows and cause is not None and cause.uuid and cause.uuid == record.evicted else ""


def is_of(pod: Object, node: str) -> bool:
    """Whether a pod is that of a node: by its name or, with a batch/v1 Job, its host name."""
    return node in {pod["metadata"]["name"], pod["spec"].get("hostname")}


def cluster_node(pods: Iterable[Object], node: str, at: str) -> str:
    """Where a node's pod was at a moment, in the API server's form of time; empty where that is not known."""
    own = [pod for pod in pods if is_of(pod, node)]
    earlier = [pod for pod in own if pod["metadata"]["creationTimestamp"] <= at and pod["spec"].get("nodeName")]
    newest = max(earlier, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    return str(newest["spec"]["nodeName"]) if newest else ""


def free_name(job: str, held: Iterable[Object], place: str) -> str:
    """The name for one more pod; empty where this cluster node is avoided already, or as many as may be are."""
    there = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in held}
    return "" if place in there.values() else next((name for name in names(job) if name not in there), "")


def holder(name: str, place: str, kind: str, workload: Object, driver: Object) -> dict[str, Any]:
    """The pod that holds the job's pods away from a cluster node, and goes with the job.

    Args:
        place: the cluster node.
        kind: the workload's.
        workload: the job.
        driver: the driver's own pod, of which it takes image and security.
    """
    own, spec = workload["metadata"], driver["spec"]
    like = next(each for each in spec["containers"] if each["name"] == "driver")
    owner = {"apiVersion": KINDS[kind][0], "kind": kind, "name": own["name"], "uid": own["uid"]}
    container = {
        "name": "holder",
        "image": like["image"],
        "imagePullPolicy": like["imagePullPolicy"],
        "command": list(COMMAND),
        "resources": {"requests": AMOUNTS, "limits": AMOUNTS},
        "securityContext": like["securityContext"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": own["namespace"],
            "labels": {LABEL: own["name"]},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": place,
            "containers": [container],
            "securityContext": spec["securityContext"],
            "imagePullSecrets": spec.get("imagePullSecrets", []),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
        },
    }
