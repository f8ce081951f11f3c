"""Kubeflow's training operator with its admission webhook, outside the cluster."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.cluster import kube
from tests.cluster.testbed.component import Component, answers
from tests.cluster.testbed.layout import Testbed
from tests.cluster.testbed.sandbox import CERTIFICATES

NAMESPACE = "kubeflow"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "pytorchjobs.kubeflow.org"},
}
SECRET: kube.Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "training-operator-webhook-cert", "namespace": NAMESPACE},
}
NEEDED_FILES = ("tls.crt", "tls.key", "ca.crt", "ca.key")


def component(testbed: Testbed) -> Component:
    """Ready when its webhook serves."""
    return Component(
        "operator",
        command=(
            testbed.program("training-operator"),
            f"--kubeconfig={testbed.kubeconfig}",
            "--enable-scheme=pytorchjob",
        ),
        needs=("apiserver",),
        env={"MY_POD_NAMESPACE": NAMESPACE},
        prepare=lambda: _install(testbed),
        ready=lambda: _ready(kube.Kube(kube.with_token(testbed.kubeconfig))),
    )


def webhook() -> kube.Object:
    """The operator's check of every PyTorchJob; it adds the authority of its certificate by itself."""
    rule = {
        "apiGroups": ["kubeflow.org"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["pytorchjobs"],
    }
    url = f"https://training-operator.{NAMESPACE}.svc:9443/validate-kubeflow-org-v1-pytorchjob"
    check = {
        "name": "validator.pytorchjob.training-operator.kubeflow.org",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validator.training-operator.kubeflow.org"},
        "webhooks": [check],
    }


def _install(testbed: Testbed) -> None:
    client = kube.Kube(kube.with_token(testbed.kubeconfig))
    path = f"{client.path(CRD)}?fieldManager=testbed&force=true"
    client.request("PATCH", path, Path(testbed.operator_crd).read_text(), kube.APPLY)
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    client.apply(SECRET)
    client.apply(webhook())


def _ready(client: kube.Kube) -> bool:
    _copy_certificates(client)
    return answers("http://127.0.0.1:8081/readyz")


def _copy_certificates(client: kube.Kube) -> None:
    """Does a Secret volume's work: the operator fills the Secret and waits for the files."""
    data = client.get(SECRET).get("data", {})
    folder = CERTIFICATES / "serving-certs"
    if folder.exists() or not all(name in data for name in NEEDED_FILES):
        return
    folder.mkdir()
    for name in NEEDED_FILES:
        (folder / name).write_bytes(base64.b64decode(data[name]))
