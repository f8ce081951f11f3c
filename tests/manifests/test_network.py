"""Who reaches the pods of a job: every job has a NetworkPolicy, unless its config or its network forbids one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastic_infra.config import JobConfig
from tests import jobs

KINDS: dict[str, Callable[..., JobConfig]] = {
    "PyTorchJob": jobs.elastic,
    "Indexed Job": jobs.indexed,
    "TrainJob": jobs.train_job,
    "single pod": jobs.job,
}
JOBS = {kind: config(launcher={"metrics_port": 9400}) for kind, config in KINDS.items()}


def policy(config: JobConfig) -> Any:
    """What the job's NetworkPolicy lets in."""
    return jobs.objects(config)["network_policy"]["spec"]


def picks(selector: Any, labels: dict[str, str]) -> bool:
    """Whether a selector of labels picks a pod."""
    return bool(selector["matchLabels"].items() <= labels.items())


def is_let_in(spec: Any, source: dict[str, str], port: int) -> bool:
    """Whether a pod with these labels reaches a port: one rule that lists source and port, or leaves them out."""
    return any(
        ("from" not in rule or any(picks(each["podSelector"], source) for each in rule["from"]))
        and ("ports" not in rule or any(each["port"] == port for each in rule["ports"]))
        for rule in spec["ingress"]
    )


@pytest.mark.parametrize("config", JOBS.values(), ids=JOBS)
def test_the_jobs_own_pods_reach_each_other(config: JobConfig) -> None:
    """Store, rendezvous and the random ports of NCCL and gloo."""
    spec, store = policy(config), jobs.objects(config).get("store")
    pods = [jobs.pod_labels(config), *([store["spec"]["template"]["metadata"]["labels"]] if store else [])]

    assert spec["policyTypes"] == ["Ingress"]
    assert all(picks(spec["podSelector"], labels) for labels in pods)
    assert all(is_let_in(spec, labels, port) for labels in pods for port in (29400, 9400, 40123))


@pytest.mark.parametrize("config", JOBS.values(), ids=JOBS)
def test_others_reach_the_status_port_alone(config: JobConfig) -> None:
    """A scraper of metrics may stand anywhere; another job of the namespace is a stranger like any."""
    spec = policy(config)
    strangers = [{}, {"app": "prometheus"}, {**jobs.pod_labels(config), "app.kubernetes.io/instance": "other"}]

    assert [is_let_in(spec, labels, 9400) for labels in strangers] == [True, True, True]
    assert [is_let_in(spec, labels, port) for labels in strangers for port in (29400, 40123)] == [False] * 6


def test_without_a_status_port_nothing_is_open() -> None:
    """No rule lets in everyone."""
    assert not is_let_in(policy(jobs.elastic()), {}, 9400)


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_closing_a_job_changes_no_other_object(config: Callable[..., JobConfig]) -> None:
    """So a running job is closed, or opened, without a restart; one line opens it."""
    closed, opened = jobs.objects(config()), jobs.objects(config(security={"network_policy": False}))

    assert closed.pop("network_policy")["kind"] == "NetworkPolicy"
    assert closed == opened


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_a_job_on_the_hosts_network_is_not_closed(config: Callable[..., JobConfig]) -> None:
    """Its store is on the network of pods, and would take its nodes for strangers."""
    overlays = {"pod": {"spec": {"hostNetwork": True}}}

    assert "network_policy" not in jobs.objects(config(overlays=overlays))
    assert "network_policy" in jobs.objects(config(overlays={"pod": {"spec": {"hostNetwork": False}}}))
