"""metrics-server: the pods' CPU and memory use, without which no autoscaler scales."""

from __future__ import annotations

from tests.cluster import kube
from tests.cluster.bed.component import Component, answers
from tests.cluster.bed.layout import Bed

PORT = 4443
VERSION = "v1beta1"
GROUP = "metrics.k8s.io"


def component(bed: Bed) -> Component:
    """Ready when it serves; its first figures come a little later."""
    return Component(
        "metrics-server",
        command=(
            bed.program("metrics-server"),
            f"--kubeconfig={bed.kubeconfig}",
            f"--authentication-kubeconfig={bed.kubeconfig}",
            f"--authorization-kubeconfig={bed.kubeconfig}",
            f"--cert-dir={bed.path('metrics-server')}",
            f"--secure-port={PORT}",
            "--kubelet-insecure-tls",
            "--kubelet-preferred-address-types=InternalIP",
            "--metric-resolution=10s",
            "--kubelet-request-timeout=8s",
        ),
        needs=("apiserver",),
        prepare=lambda: _register(bed),
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


def _register(bed: Bed) -> None:
    client = kube.Kube(kube.with_token(bed.kubeconfig))
    for manifest in manifests():
        client.apply(manifest)
