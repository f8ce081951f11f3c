"""A batch/v1 Job of one pod: retried when its cluster node is lost, failed for good when the script is at fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests import jobs


def _spec(**fields: Any) -> Any:
    return jobs.objects(jobs.job(**fields))["workload"]["spec"]


def test_the_spec_is_complete() -> None:
    """Everything but the pod's template."""
    spec = _spec()
    spec.pop("template")

    assert spec == {
        "backoffLimit": 3,
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


def test_the_pod_is_a_nodes_pod_in_standalone_mode() -> None:
    """The same pod as a node's, but never restarted in place, which a pod failure policy demands, and without ports."""
    single, node = jobs.pod_spec(jobs.job()), jobs.pod_spec(jobs.job(target="pytorchjob"))
    (ours,), (theirs,) = single.pop("containers"), node.pop("containers")

    assert single.pop("restartPolicy") == "Never"
    assert single == node
    assert ours["args"] == ["--standalone", *theirs["args"]]
    assert {name: ours[name] for name in ours if name not in {"args", "env"}} == {
        name: theirs[name] for name in theirs if name not in {"args", "env", "ports"}
    }


@pytest.mark.parametrize(
    ("policy", "field", "value"),
    [
        ({"backoff_limit": 0}, "backoffLimit", 0),
        ({"suspend": False}, "suspend", False),
        ({"ttl_seconds_after_finished": 0}, "ttlSecondsAfterFinished", 0),
        ({"active_deadline_seconds": 60}, "activeDeadlineSeconds", 60),
        ({"managed_by": "kueue.x-k8s.io/multikueue"}, "managedBy", "kueue.x-k8s.io/multikueue"),
    ],
)
def test_the_run_policy_is_the_jobs_own(policy: dict[str, Any], field: str, value: object) -> None:
    """What a batch/v1 Job has a field for reaches it, zeros too."""
    assert _spec(run_policy=policy)[field] == value


@pytest.mark.parametrize(
    ("fields", "annotations"),
    [
        ({}, {"pulumi.com/skipAwait": "true"}),
        (
            {"wait_for": "running", "wait_timeout_seconds": 60},
            {"pulumi.com/timeoutSeconds": "60", "pulumi.com/waitFor": "jsonpath={.status.ready}=1"},
        ),
        ({"wait_for": "succeeded"}, {"pulumi.com/timeoutSeconds": "600"}),
    ],
)
def test_pulumi_waits_only_when_asked(fields: dict[str, Any], annotations: dict[str, str]) -> None:
    """For a Job Pulumi would wait by itself until it is complete."""
    metadata = jobs.objects(jobs.job(**fields))["workload"]["metadata"]

    assert metadata["annotations"] == {"pulumi.com/deletionPropagationPolicy": "foreground", **annotations}


def test_a_queue_is_a_label_of_the_workload() -> None:
    """Kueue admits batch/v1 Jobs by the same label."""
    workload = jobs.objects(jobs.job(placement={"queue": "gpu"}))["workload"]

    assert workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpu"


def test_a_changed_workload_is_another_run() -> None:
    """As for a PyTorchJob; and a run id of the user's own is kept."""
    first, second = (jobs.environment(jobs.job(image=image))["PET_RDZV_ID"] for image in ("a", "b"))

    assert first != second
    assert jobs.environment(jobs.job(elastic={"rdzv_id": "mine"}))["PET_RDZV_ID"] == "mine"
