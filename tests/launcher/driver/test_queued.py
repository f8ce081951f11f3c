"""What workloads of a queue of Kueue wait for, in nodes of the job."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.launcher.driver.observation import QUEUE
from elastic_infra.launcher.driver.queued import GROWS, claims
from tests.launcher.driver.test_observation import Object, node

JOB: Object = {"metadata": {"uid": "job", "labels": {QUEUE: "research"}}, "spec": {"parallelism": 3}}
LACKS = "insufficient unused quota for {} in flavor {}, {} more needed"


def lacking(*lacks: tuple[str, str, str]) -> str:
    """Kueue's words for what a workload lacks: resource, flavor and amount."""
    return "couldn't assign flavors to pod set main: " + ", ".join(LACKS.format(*each) for each in lacks)


def workload(uid: str, why: str = "", **more: Any) -> Object:
    """One that waits; `more` are parts of its metadata and spec."""
    said = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": why}
    return {
        "metadata": {"uid": uid, **more.get("metadata", {})},
        "spec": {"queueName": "research", "priority": 5, **more.get("spec", {})},
        "status": {"conditions": [said]},
    }


def own(priority: int = 5) -> Object:
    """The job's, with quota of one flavor for each resource."""
    flavors = {"cpu": "usual", "nvidia.com/gpu": "a100"}
    return {
        "metadata": {"uid": "mine", "ownerReferences": [{"uid": "job"}]},
        "spec": {"queueName": "research", "priority": priority},
        "status": {"admission": {"podSetAssignments": [{"name": "main", "flavors": flavors}]}},
    }


@pytest.mark.parametrize(
    ("lacks", "nodes"),
    [
        ([("nvidia.com/gpu", "a100", "1")], 1),
        ([("cpu", "usual", "4500m")], 2),
        ([("cpu", "usual", "500m"), ("nvidia.com/gpu", "a100", "2")], 2),
        ([("nvidia.com/gpu", "h100", "3"), ("nvidia.com/gpu", "a100", "1")], 1),
        ([("nvidia.com/gpu", "a100", "3")], None),
        ([("nvidia.com/gpu", "h100", "1")], None),
        ([("cpu", "usual", "1"), ("memory", "usual", "1Gi")], None),
        ([], None),
    ],
)
def test_a_workload_lacks_as_many_nodes_as_have_it(lacks: list[tuple[str, str, str]], nodes: int | None) -> None:
    """Of a node's own flavors: 4 processors and a GPU. More than the job can give, and what it has not, is no claim."""
    found = claims([own(), workload("other", lacking(*lacks))], JOB, node(0), most=2)

    assert found == ({f"other/{nodes}"} if nodes else set())


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({}, True),
        ({"spec": {"priority": 6}}, True),
        ({"spec": {"priority": 4}}, False),
        ({"spec": {"queueName": "other"}}, False),
        ({"metadata": {"annotations": {GROWS: "research/other"}}}, False),
        ({"metadata": {"ownerReferences": [{"uid": "job"}]}}, False),
    ],
)
def test_whose_claims_count(more: Object, *, counts: bool) -> None:
    """Those of the same queue with no lower priority that begin; the growth of another job takes what is idle."""
    waiting = workload("other", lacking(("cpu", "usual", "1")), **more)

    assert bool(claims([own(), waiting], JOB, node(0), most=2)) is counts


def test_a_workload_that_has_quota_waits_for_nothing() -> None:
    """Whatever Kueue said of it before."""
    other = workload("other", lacking(("cpu", "usual", "1")))
    other["status"]["conditions"][0]["status"] = "True"

    assert claims([own(), other], JOB, node(0), most=2) == set()


def test_without_quota_of_its_own_a_job_has_nothing_to_give() -> None:
    """Its workload is not there yet."""
    assert claims([workload("other", lacking(("cpu", "usual", "1")))], JOB, node(0), most=2) == set()
