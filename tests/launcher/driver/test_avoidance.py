"""Which cluster nodes are avoided, and by which pods."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.launcher.driver import avoidance
from elastic_infra.launcher.protocol.records import Cause, Generation

BAD = Cause("worker_failed", "train-1", "u1")
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def pod(name: str, place: str = "", at: str = EARLY, hostname: str | None = None) -> dict[str, Any]:
    """A pod of the namespace."""
    spec = {"hostname": hostname, **({"nodeName": place} if place else {})}
    return {"metadata": {"name": name, "creationTimestamp": at}, "spec": spec}


@pytest.mark.parametrize(
    ("before", "record", "node"),
    [
        (Generation(3), Generation(4, cause=BAD, evicted="u1"), "train-1"),
        (Generation(3, "broken", cause=BAD), Generation(4, cause=BAD, evicted="u1"), "train-1"),
        (None, Generation(4, cause=BAD, evicted="u1"), ""),
        (Generation(2), Generation(4, cause=BAD, evicted="u1"), ""),
        (Generation(4, cause=BAD, evicted="u1"), Generation(4, "broken", cause=BAD, evicted="u1"), ""),
        (Generation(4), Generation(5, cause=Cause("node_lost", "train-2", "u2"), evicted="u1"), ""),
        (Generation(3), Generation(4, cause=BAD), ""),
    ],
)
def test_a_node_is_left_out_at_one_moment(before: Generation | None, record: Generation, node: str) -> None:
    """A record that was seen late says nothing: the pod of that name may be another one by then."""
    assert avoidance.left_out(before, record) == node


@pytest.mark.parametrize(
    ("pods", "place"),
    [
        ([pod("train-worker-1", "gpu-1"), pod("train-worker-2", "gpu-2")], "gpu-1"),
        ([pod("train-1-abcde", "gpu-1", hostname="train-worker-1")], "gpu-1"),
        ([pod("train-worker-1", "gpu-3", at=LATE)], ""),
        ([pod("a", "gpu-1", hostname="train-worker-1"), pod("b", "gpu-2", LATE, hostname="train-worker-1")], "gpu-1"),
        ([pod("train-worker-1")], ""),
        ([], ""),
    ],
)
def test_the_cluster_node_is_that_of_the_pod_that_failed(pods: list[Any], place: str) -> None:
    """By its name or, with a batch/v1 Job, its host name; its replacement is made later."""
    assert avoidance.cluster_node(pods, "train-worker-1", "2026-01-01T00:30:00Z") == place


def test_each_cluster_node_is_held_once_and_a_few_at_most() -> None:
    """A name that has become free is used again."""
    names = avoidance.names("train")
    held = [pod(name, f"gpu-{name}") for name in names[1:]]

    assert avoidance.free_name("train", [], "gpu-1") == names[0]
    assert avoidance.free_name("train", held, "gpu-1") == names[0]
    assert avoidance.free_name("train", [*held, pod(names[0], "gpu-0")], "gpu-1") == ""
    assert avoidance.free_name("train", held, f"gpu-{names[1]}") == ""


def test_a_holder_goes_with_its_job_and_is_as_safe_as_the_driver() -> None:
    """It is on the cluster node whatever taints that has, and has no token."""
    security = {"runAsNonRoot": True}
    like = {"name": "driver", "image": "i", "imagePullPolicy": "Always", "securityContext": {"privileged": False}}
    driver = {"spec": {"containers": [{"name": "store"}, like], "securityContext": security}}
    workload = {"metadata": {"namespace": "research", "name": "train", "uid": "0-1"}}
    made = avoidance.holder("train-avoid-0", "gpu-1", "Job", workload, driver)

    assert made["metadata"] == {
        "name": "train-avoid-0",
        "namespace": "research",
        "labels": {"elastic-infra/avoid": "train"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "0-1"}],
    }
    assert (made["spec"]["nodeName"], made["spec"]["tolerations"]) == ("gpu-1", [{"operator": "Exists"}])
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["securityContext"] == security
    (container,) = made["spec"]["containers"]
    assert (container["image"], container["securityContext"]) == ("i", {"privileged": False})
