"""The service account of the pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests import jobs

OWN = {"security": {"own_service_account": True}}
MAKERS = [jobs.job, jobs.elastic, jobs.indexed, jobs.train_job]


@pytest.mark.parametrize("make", MAKERS)
def test_every_pod_runs_as_the_jobs_own_account(make: Any) -> None:
    """The account is applied before the pods, and neither it nor a pod asks for its token."""
    objects = jobs.objects(make(**OWN))
    account = objects["pod_account"]
    specs = [template["spec"] for template in jobs.templates(objects)]

    assert (account["kind"], account["metadata"]["name"]) == ("ServiceAccount", "job")
    assert account["automountServiceAccountToken"] is False
    assert {spec["serviceAccountName"] for spec in specs} == {"job"}
    assert not any(spec["automountServiceAccountToken"] for spec in specs)
    assert [*objects].index("pod_account") < [*objects].index("workload")


@pytest.mark.parametrize("make", MAKERS)
def test_no_account_is_made_unless_asked_for(make: Any) -> None:
    """The pods run as the namespace's default account."""
    objects = jobs.objects(make())

    assert "pod_account" not in objects
    assert not any("serviceAccountName" in template["spec"] for template in jobs.templates(objects))


def test_the_driver_keeps_an_account_of_its_own() -> None:
    """What the driver may do is not what the pods that train may."""
    objects = jobs.objects(jobs.elastic(**OWN, launcher={"kubernetes_events": True}))
    names = {template["spec"]["serviceAccountName"] for template in jobs.templates(objects)}

    assert names == {"job", "job-driver"}
