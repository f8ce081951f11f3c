"""What `scale` and `cancel` may do: decisions on the live object alone."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from elastic_infra.operations.change import check_resize, completions, suspension
from elastic_infra.operations.objects import RefusedError
from tests.operations import kube

AUTOSCALED = {"resources": {"cpu": "1"}, "autoscaling": {"metrics": [{"type": "cpu", "target": "80"}]}}


def queued(job: dict[str, Any]) -> dict[str, Any]:
    """With the label that Kueue gives a job that names no queue, in a namespace with one for these."""
    job["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "default"
    return job


@pytest.mark.parametrize(
    "job", [kube.workload(), kube.workload("Running"), kube.workload("Suspended"), kube.workload(target="job")]
)
@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_size_is_moved_within_the_range(job: dict[str, Any], nodes: int) -> None:
    """A suspended job has it when it goes on."""
    check_resize(job, nodes)


@pytest.mark.parametrize(
    ("job", "nodes", "why"),
    [
        (kube.workload(), 1, "trains with 2 to 4 nodes, and 1 is outside"),
        (kube.workload(), 5, "trains with 2 to 4 nodes, and 5 is outside"),
        (kube.workload(target="job"), 5, "trains with 2 to 4 nodes, and 5 is outside"),
        (kube.workload(target="job", elastic={"initial_nodes": 2}), 3, "Set elastic.initial_nodes: 3 there"),
        (kube.workload(elastic={"node_unit": 2}), 3, "would wait. Choose 2 or 4."),
        (kube.workload(elastic={"initial_nodes": 2}), 3, "Set elastic.initial_nodes: 3 there"),
        (kube.workload(**AUTOSCALED), 3, "An autoscaler sets the size of job"),
        (
            kube.workload(target="job", placement={"queue": "q", "kueue": {"mode": "partial"}}),
            3,
            "Set the mode to 'elastic'",
        ),
        (kube.workload(elastic={"nnodes": 2}), 3, "has 2 nodes, no range of them"),
        (kube.workload(elastic={"nnodes": 1}), 3, "has 1 node, no range of them"),
        (kube.train_job(), 3, 'such as "1:3"'),
        (kube.train_job(), 3, "keeps its 4 nodes for its whole life"),
        (kube.train_job(), 3, "or set elastic.elastic_job_set without elastic.initial_nodes"),
        (kube.train_job("Suspended", elastic={"nnodes": "2:4", "elastic_job_set": True}), 3, "job is suspended"),
        (kube.train_job(elastic={"nnodes": "2:4", "elastic_job_set": True}), 5, "2 to 4 nodes"),
        (queued(kube.train_job(elastic={"nnodes": "2:4", "elastic_job_set": True})), 3, "in the Kueue queue default"),
        (kube.workload("Succeeded"), 3, "has succeeded and has no pods to change"),
    ],
)
def test_what_another_sets_or_the_job_cannot_have_is_refused(job: dict[str, Any], nodes: int, why: str) -> None:
    """With the edit to make."""
    with pytest.raises(RefusedError, match=re.escape(why)):
        check_resize(job, nodes)


def test_both_numbers_of_an_indexed_job_move_together() -> None:
    """Kubernetes refuses one of them alone."""
    assert completions(3) == {"spec": {"parallelism": 3, "completions": 3}}


def test_a_job_is_suspended_where_its_kind_has_the_switch() -> None:
    """The patch that undoes it has the job go on from its checkpoint."""
    several, one = suspension(kube.workload("Running")), suspension(kube.workload(elastic={"nnodes": 1}))
    of_trainer = suspension(kube.train_job())

    assert several is not None
    assert one is not None
    assert several.patch == {"spec": {"runPolicy": {"suspend": True}}}
    assert several.undo == {"spec": {"runPolicy": {"suspend": False}}}
    assert of_trainer == one
    assert one.patch == {"spec": {"suspend": True}}


def test_a_suspended_job_stays_as_it_is() -> None:
    """By the switch, whether or not the operator has followed yet."""
    job = kube.workload("Running")
    job["spec"]["runPolicy"]["suspend"] = True

    assert suspension(job) is None


def test_what_a_queue_would_start_again_is_stopped_in_the_queue() -> None:
    """Kueue owns the switch of the jobs that it admits."""
    with pytest.raises(RefusedError, match=r"Kueue decides when job runs \(queue gpu\)"):
        suspension(kube.workload("Running", placement={"queue": "gpu"}))


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "Complete"])
def test_a_job_that_has_ended_is_not_cancelled(end: str) -> None:
    """There is nothing to stop, and a script that asks is told so."""
    with pytest.raises(RefusedError, match=r"run_policy\.rerun"):
        suspension(kube.workload(end))


def test_an_object_without_any_field_is_read() -> None:
    """What a controller has not filled in yet is no error."""
    bare = copy.deepcopy(kube.workload())
    del bare["status"]

    check_resize(bare, 3)
