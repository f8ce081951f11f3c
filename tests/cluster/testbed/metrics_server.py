"""metrics-server: the pods' CPU and memory use, without which no autoscaler scales."""

from __future__ import annotations

from tests.cluster import kube
from tests.cluster.testbed.component import Component, answers
from tests.cluster.testbed.layout import Testbed

PORT = 4443
VERSION = "v1beta1"
GROUP = "metrics.k8s.io"


def component(testbed: Testbed) -> Component:
    """Ready when it serves; its first figures come a little later."""
    return Component(
        "metrics-server",
        command=(
            testbed.program("metrics-server"),
            f"--kubeconfig={testbed.kubeconfig}",
            f"--authentication-kubeconfig={testbed.kubeconfig}",
            f"--authorization-kubeconfig={testbed.kubeconfig}",
            f"--cert-dir={testbed.path('metrics-server')}",
            f"--secure-port={PORT}",
            "--kubelet-insecure-tls",
            "--kubelet-preferred-address-types=InternalIP",
            "--metric-resolution=10s",
            "--kubelet-request-timeout=8s",
        ),
        needs=("apiserver",),
        prepare=lambda: _register(testbed),
        ready=lambda: answers(f"https://127.0.0.1:{PORT}/livez"),
    )


def manifests() -> tuple[kube.Object, ...]:
    """Leads the API server to this program, which runs beside it and not in a pod."""
    place = {"name": "metrics-server", "namespace": "kube-system"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": place,
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": PORT}]},
    }
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "service": {**place, "port": PORT},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    return service, api


def _register(testbed: Testbed) -> None:
    client = kube.Kube(kube.with_token(testbed.kubeconfig))
    for manifest in manifests():
        client.apply(manifest)
