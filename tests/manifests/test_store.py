"""The dedicated rendezvous store: one small pod that is back before the launchers give up."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_infra.launcher.settings import LauncherSettings
from elastic_infra.manifests.store_token import store_token_variable
from tests import jobs


def _store(**fields: Any) -> Any:
    return jobs.objects(jobs.elastic(**fields))["store"]


def test_the_store_is_complete() -> None:
    """The whole Deployment with the defaults."""
    launcher = jobs.objects(jobs.job())["launcher"]["metadata"]["name"]
    amounts = {"cpu": "500m", "memory": "256Mi"}
    own = {"app.kubernetes.io/instance": "job", "app.kubernetes.io/managed-by": "elastic-infra"}

    assert _store() == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "job-rdzv",
            "namespace": "default",
            "labels": own,
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {
                "matchLabels": {"app.kubernetes.io/instance": "job", "app.kubernetes.io/component": "rendezvous"}
            },
            "template": {
                "metadata": {
                    "labels": {**own, "app.kubernetes.io/component": "rendezvous"},
                    "annotations": {"sidecar.istio.io/inject": "false"},
                },
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {
                        "fsGroup": 1000,
                        "fsGroupChangePolicy": "OnRootMismatch",
                        "runAsGroup": 1000,
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "tolerations": [
                        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
                        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
                    ],
                    "volumes": [{"name": "launcher", "configMap": {"name": launcher}}],
                    "containers": [
                        {
                            "name": "store",
                            "image": jobs.IMAGE,
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["python3", "-m", "elastic_infra.launcher.store", "--port", "29400"],
                            "env": [
                                store_token_variable("job"),
                                {"name": "PYTHONPATH", "value": "/opt/elastic-infra/launcher.zip"},
                                {"name": "PYTHONUNBUFFERED", "value": "1"},
                            ],
                            "ports": [{"name": "rendezvous", "containerPort": 29400, "protocol": "TCP"}],
                            "resources": {"requests": amounts, "limits": amounts},
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                            "volumeMounts": [{"name": "launcher", "mountPath": "/opt/elastic-infra", "readOnly": True}],
                        }
                    ],
                },
            },
        },
    }


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"rendezvous": {"image": "python:3.12"}}, "image", "python:3.12"),
        ({"image_pull_policy": "Always"}, "imagePullPolicy", "Always"),
        (
            {"rendezvous": {"resources": {"memory": "1Gi"}}},
            "resources",
            {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1Gi"}},
        ),
        (
            {"rendezvous": {"port": 2000}},
            "command",
            ["python3", "-m", "elastic_infra.launcher.store", "--port", "2000"],
        ),
        (
            {"launcher": {"delivery": "image"}},
            "env",
            [store_token_variable("job"), {"name": "PYTHONUNBUFFERED", "value": "1"}],
        ),
    ],
)
def test_the_store_follows_the_config(fields: dict[str, Any], name: str, value: object) -> None:
    """Image, port, size and delivery are the config's."""
    assert _store(**fields)["spec"]["template"]["spec"]["containers"][0][name] == value


def test_the_store_comes_from_the_same_registry_and_account() -> None:
    """Pull secrets, service account and priority are those of the job; the user's variables are not its business."""
    pod = _store(
        image_pull_secrets=["registry"],
        security={"service_account": "trainer"},
        placement={"priority_class": "high"},
        env={"TOKEN": "x"},
    )["spec"]["template"]["spec"]

    assert (pod["imagePullSecrets"], pod["serviceAccountName"], pod["priorityClassName"]) == (
        [{"name": "registry"}],
        "trainer",
        "high",
    )
    assert "TOKEN" not in {entry["name"] for entry in pod["containers"][0]["env"]}


def test_the_store_has_a_place_of_its_own() -> None:
    """Where its fields say, and not where the training nodes are: it needs no GPU."""
    training: dict[str, Any] = {"node_selector": {"pool": "h100"}, "tolerations": [{"key": "nvidia.com/gpu"}]}
    own: dict[str, Any] = {
        "node_selector": {"pool": "cpu"},
        "tolerations": [{"key": "team", "operator": "Equal", "value": "ml"}],
    }
    pods = [_store(placement=training, **fields)["spec"]["template"]["spec"] for fields in ({}, {"rendezvous": own})]

    assert [pod.get("nodeSelector") for pod in pods] == [None, {"pool": "cpu"}]
    assert [len(pod["tolerations"]) for pod in pods] == [2, 3]
    assert pods[1]["tolerations"][2] == {"key": "team", "operator": "Equal", "value": "ml"}


def test_the_store_leaves_a_lost_cluster_node_before_the_launchers_give_up() -> None:
    """Half of the orphan timeout at most, so that the new pod has the other half to start."""
    seconds = {t["tolerationSeconds"] for t in _store()["spec"]["template"]["spec"]["tolerations"]}

    assert max(seconds) <= LauncherSettings().orphan_timeout_seconds / 2


def test_changing_the_job_leaves_its_selector() -> None:
    """A Deployment's selector can never change."""
    assert _store()["spec"]["selector"] == _store(labels={"team": "x"}, image="other")["spec"]["selector"]
