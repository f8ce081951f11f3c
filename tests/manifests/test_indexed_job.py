"""An Indexed batch/v1 Job: several nodes without an operator, whose part the manifest and the Job controller take."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.local.operator_env import operator_env
from elastic_infra.manifests.figures import figures, replicas
from tests import jobs

INDEX = "batch.kubernetes.io/job-completion-index"
NODES = {"app.kubernetes.io/instance": "job", "app.kubernetes.io/component": "worker"}


def _spec(**fields: Any) -> Any:
    return jobs.objects(jobs.indexed(**fields))["workload"]["spec"]


def test_the_spec_is_complete() -> None:
    """Everything but the pod's template."""
    spec = _spec()
    spec.pop("template")

    assert spec == {
        "completionMode": "Indexed",
        "parallelism": 4,
        "completions": 4,
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "backoffLimit": 12,
        "backoffLimitPerIndex": 2**31 - 1,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "pytorch", "operator": "In", "values": [1, 2, 93]},
                },
            ]
        },
    }


def test_the_pod_is_a_nodes_pod_of_a_pytorchjob() -> None:
    """The same but for the environment, the operator's port and the policy that a pod failure policy demands."""
    ours, theirs = jobs.pod_spec(jobs.indexed()), jobs.pod_spec(jobs.elastic())
    (own,), (their,) = ours.pop("containers"), theirs.pop("containers")

    assert ours.pop("restartPolicy") == "Never"
    assert ours == theirs
    assert {name: own[name] for name in own if name != "env"} == {
        name: their[name] for name in their if name not in {"env", "ports"}
    }
    assert not {"hostname", "subdomain"} & set(ours)


@pytest.mark.parametrize(
    ("fields", "endpoint"),
    [({}, "job-rdzv:29400"), ({"rendezvous": {"host": "worker0", "port": 2000}}, "job-0:2000")],
)
def test_the_launcher_is_told_what_the_operator_would_tell_it(fields: dict[str, Any], endpoint: str) -> None:
    """But for the run, which is another, and the place of the store: a node's own Service is named as its host."""
    ours = jobs.environment(jobs.indexed(**fields))
    theirs = operator_env(jobs.objects(jobs.elastic(**fields))["workload"])

    assert ours["PET_RDZV_ENDPOINT"] == endpoint
    assert {name: ours[name] for name in theirs if name not in {"PET_RDZV_ENDPOINT", "PET_RDZV_ID"}} == {
        name: value for name, value in theirs.items() if name not in {"PET_RDZV_ENDPOINT", "PET_RDZV_ID"}
    }


def test_a_node_has_the_name_of_its_index() -> None:
    """A pod's own name is another after each loss; `$(NAME)` knows variables before it alone."""
    environment = jobs.environment(jobs.indexed(env={"MINE": "1"}))
    names = list(environment)

    assert environment["ELASTIC_INFRA_REPLICA_INDEX"] == {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    assert environment["ELASTIC_INFRA_NODE_NAME"] == "job-$(ELASTIC_INFRA_REPLICA_INDEX)"
    assert names.index("ELASTIC_INFRA_REPLICA_INDEX") < names.index("ELASTIC_INFRA_NODE_NAME")
    assert names[-2:] == ["ELASTIC_INFRA_NODE_NAME", "MINE"]


def test_the_store_on_a_node_is_that_of_index_0() -> None:
    """Its Service has its host name, and picks it by the controller's label; the port is named."""
    config = jobs.indexed(elastic={"nnodes": 2})
    service = jobs.objects(config)["service"]

    assert service["metadata"]["name"] == "job-0"
    assert service["spec"]["selector"] == {**NODES, INDEX: "0"}
    assert jobs.container(config)["ports"] == [{"name": "rendezvous", "containerPort": 29400, "protocol": "TCP"}]


def test_a_disruption_budget_picks_the_nodes() -> None:
    """By this package's labels, for the operator's are not there."""
    budget = jobs.objects(jobs.indexed(disruption={"pod_disruption_budget": True}))["disruption_budget"]

    assert budget["spec"] == {"minAvailable": 2, "selector": {"matchLabels": NODES}}


@pytest.mark.parametrize(
    ("fields", "annotations"),
    [
        ({}, {"pulumi.com/skipAwait": "true"}),
        (
            {"wait_for": "running", "elastic": {"initial_nodes": 3}},
            {
                "elastic-infra/size-owner": "config",
                "pulumi.com/timeoutSeconds": "600",
                "pulumi.com/waitFor": "jsonpath={.status.ready}=3",
            },
        ),
        ({"wait_for": "succeeded"}, {"pulumi.com/timeoutSeconds": "600"}),
    ],
)
def test_pulumi_waits_only_when_asked(fields: dict[str, Any], annotations: dict[str, str]) -> None:
    """A Job that runs has no condition that says so: its ready pods are counted."""
    metadata = jobs.objects(jobs.indexed(**fields))["workload"]["metadata"]

    assert metadata["annotations"] == {"pulumi.com/deletionPropagationPolicy": "foreground", **annotations}


@pytest.mark.parametrize(
    ("kueue", "fields", "size", "annotations"),
    [
        ({}, {"initial_nodes": 3}, 3, {"elastic-infra/size-owner": "config"}),
        (
            {"mode": "partial"},
            {},
            4,
            {
                "elastic-infra/size-owner": "queue",
                "kueue.x-k8s.io/job-min-parallelism": "2",
                "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
            },
        ),
        ({"mode": "partial"}, {"initial_nodes": 3}, 3, None),
        ({"mode": "elastic"}, {}, 2, {"kueue.x-k8s.io/elastic-job": "true"}),
        ({"mode": "elastic"}, {"initial_nodes": 3}, 3, {"kueue.x-k8s.io/elastic-job": "true"}),
    ],
)
def test_kueue_is_told_how_much_of_the_job_it_may_admit(
    kueue: dict[str, str], fields: dict[str, int], size: int, annotations: dict[str, str] | None
) -> None:
    """In part from the minimum on, or the minimum with growth later; the queue and the order are labels."""
    placement = {"queue": "gpus", "kueue": {**kueue, "priority_class": "high"}}
    job = jobs.objects(jobs.indexed(elastic=fields, placement=placement))["workload"]
    told = {key: value for key, value in job["metadata"]["annotations"].items() if "pulumi.com" not in key}

    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (size, size)
    assert annotations is None or told == annotations
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert "kueue" not in str(job["spec"])


@pytest.mark.parametrize(("limit", "told", "read"), [(7, 7, 7), (0, 0, 0), (-1, 2**31 - 1, None)])
def test_figures_are_read_back_from_the_object(limit: int, told: int, read: int | None) -> None:
    """The bounds stand in no field of the Job, so that the launcher's variable has them; -1 is no limit."""
    workload = jobs.objects(jobs.indexed(elastic={"initial_nodes": 3}, run_policy={"backoff_limit": limit}))["workload"]
    found = figures(workload)

    assert (found.min_nodes, found.max_nodes, replicas(workload)) == (2, 4, 3)
    assert (found.max_restarts, found.restarts_in_place) == (3, True)
    assert workload["spec"]["backoffLimit"] == told
    assert found.backoff_limit == read
