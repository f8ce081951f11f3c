"""One Service, in front of the store: found before anything is ready, and never taken for the operator's."""

from __future__ import annotations

from typing import Any

import pytest

from tests import jobs

FIRST_NODE = {
    "training.kubeflow.org/job-name": "job",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
STORE = {"app.kubernetes.io/instance": "job", "app.kubernetes.io/component": "rendezvous"}
RENDEZVOUS = {"name": "rendezvous", "port": 29400, "targetPort": 29400, "protocol": "TCP"}
STATUS = {"name": "status", "port": 9000, "targetPort": 9000, "protocol": "TCP"}


@pytest.mark.parametrize(
    ("fields", "selector", "ports"),
    [
        ({}, STORE, [RENDEZVOUS]),
        ({"rendezvous": {"host": "worker0"}}, FIRST_NODE, [RENDEZVOUS]),
        ({"rendezvous": {"host": "worker0"}, "launcher": {"metrics_port": 9000}}, FIRST_NODE, [RENDEZVOUS, STATUS]),
        ({"elastic": {"nnodes": 2}}, FIRST_NODE, [RENDEZVOUS]),
    ],
)
def test_the_service_is_complete(fields: dict[str, Any], selector: dict[str, str], ports: list[Any]) -> None:
    """Headless, published before readiness, with its own labels and the store's in its selector."""
    service = jobs.objects(jobs.elastic(**fields))["service"]

    assert service == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "job-rdzv",
            "namespace": "default",
            "labels": {"app.kubernetes.io/instance": "job", "app.kubernetes.io/managed-by": "elastic-infra"},
        },
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector, "ports": ports},
    }
